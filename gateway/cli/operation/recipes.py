"""The recipes of `thriftgate backends add`: how to write a backend of each vendor, cloud and model server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.domain.kinds import KINDS


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to write a backend of one vendor, cloud or model server."""

    title: str
    model: str
    """An example of a model's name."""
    kind: str = ""
    """The kind in gateway.yaml. Empty: the recipe's own name."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Keys of the backend that are set unless the user gives other values."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Keys of the backend without which it cannot be called → an example."""
    own: bool = False
    """Whether the model usually runs on the operator's own machines, so that its strength must be known."""


def _server(title: str, port: int) -> Recipe:
    address = f"http://127.0.0.1:{port}/v1"
    return Recipe(title, "qwen2.5-7b-instruct", kind="openai", values={"base_url": address}, own=True)


_REGION = {"region": "eu-central-1"}
RECIPES: Mapping[str, Recipe] = {
    "openai": Recipe(
        "OpenAI", "gpt-5-mini", values={"base_url": "https://api.openai.com/v1", "api_key": "env:OPENAI_API_KEY"}
    ),
    "anthropic": Recipe(
        "Anthropic",
        "claude-sonnet-4-6",
        values={"base_url": "https://api.anthropic.com/v1", "api_key": "env:ANTHROPIC_API_KEY"},
    ),
    "azure": Recipe(
        "Azure OpenAI",
        "gpt-4o",
        values={"api_key": "env:AZURE_API_KEY"},
        needs={"base_url": "https://NAME.openai.azure.com"},
    ),
    "bedrock": Recipe("Amazon Bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", needs=_REGION),
    "vertex": Recipe("Vertex AI", "gemini-2.5-pro", needs={"project": "my-project", "region": "europe-west4"}),
    "gemini": Recipe("Gemini API", "gemini-2.5-flash"),
    "gemini_openai": Recipe("Gemini API, OpenAI's dialect", "gemini-2.5-flash"),
    "openrouter": Recipe("OpenRouter", "openai/gpt-4o-mini"),
    "mistral": Recipe("Mistral", "mistral-small-latest"),
    "groq": Recipe("Groq", "openai/gpt-oss-20b"),
    "deepseek": Recipe("DeepSeek", "deepseek-v4-flash"),
    "xai": Recipe("xAI", "grok-4.3"),
    "together": Recipe("Together", "openai/gpt-oss-120b"),
    "cohere": Recipe("Cohere", "command-r7b-12-2024"),
    "ollama": Recipe("Ollama on this machine", "llama3.2:3b", own=True),
    "vllm": _server("vLLM on this machine", 8000),
    "llamacpp": _server("llama.cpp's server on this machine", 8081),
    "lmstudio": _server("LM Studio on this machine", 1234),
    "local": Recipe("the packaged local model", "smollm2-135m-instruct", values={"strength": "small"}),
    "litellm": Recipe("any other provider, through litellm", "watsonx/ibm/granite-3-8b-instruct"),
    "thriftgate": Recipe("another Thriftgate", "auto", needs={"base_url": "https://gateway.example.com/v1"}),
    "litellm_proxy": Recipe("a LiteLLM proxy", "gpt-4o", needs={"base_url": "https://litellm.example.com/v1"}),
    "simulated": Recipe("answers without a model, for tests", "simulated-large", values={"strength": "large"}),
}
"""Name on the command line → recipe. Every kind of backend has a recipe."""


def credential(name: str) -> str:
    """A text for people that says from where the backend gets its credential. Empty if the backend needs none."""
    recipe = RECIPES[name]
    return (
        {
            "bedrock": "AWS's variables, files or role",
            "vertex": "Google's credential file or metadata server",
            "litellm": "--key env:NAME",
            "thriftgate": "--key env:NAME",
            "litellm_proxy": "--key env:NAME",
        }.get(name)
        or recipe.values.get("api_key", "").removeprefix("env:")
        or KINDS[recipe.kind or name].key
    )
