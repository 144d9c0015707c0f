"""Which real clients there are, what runs each of them, and whom they ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".clients"
"""Where `make test-clients` puts the clients: nothing of it is the gateway's own."""

Team = Literal["off", "on", "agents"]


@dataclass(frozen=True)
class Target:
    """Whom a client asks: a team, with its policy, and the model's name in its mouth."""

    team: Team
    model: str
    claude_model: str
    """The same, by a name of Anthropic's that policies give this meaning: some clients know their models by name."""
    gpt_model: str
    """The same, by a name of OpenAI's."""
    lacks: str = ""
    """What its upstream cannot take, so that the gateway refuses it."""

    def __str__(self) -> str:
        return f"{self.team}-{self.model}"


CHAT_MODEL, CLAUDE_MODEL, RESPONSES_MODEL, EMBEDDER = "gpt-4.1", "claude-sonnet-4-6", "gpt-4.1-mini", "embedder"
GEMINI_MODEL, CONVERSE_MODEL, OLLAMA_MODEL = "gemini-3-pro", "amazon.nova-pro-v1:0", "llama3.2:3b"
_UPSTREAMS = ("chat", "claude", "responses", "gemini", "converse", "ollama")
OFF = (
    Target("off", CHAT_MODEL, "claude-haiku-4-5-20251001", "gpt-5.6-terra"),
    Target("off", CLAUDE_MODEL, CLAUDE_MODEL, "gpt-5.5"),
    Target("off", RESPONSES_MODEL, "claude-opus-4-5-20251101", "gpt-5.6-sol"),
)
"""Backends of OpenAI's and Anthropic's dialects, with cache, trimming and routing off."""
CLOUDS = (
    Target("off", GEMINI_MODEL, "claude-sonnet-4-5-20250929", GEMINI_MODEL),
    Target("off", CONVERSE_MODEL, "claude-opus-4-1-20250805", CONVERSE_MODEL),
    Target("off", OLLAMA_MODEL, "claude-haiku-4-5", OLLAMA_MODEL, lacks="pdf"),
)
"""Backends of the other dialects, in the same way."""
UPSTREAMS = dict(zip((each.model for each in (*OFF, *CLOUDS)), _UPSTREAMS, strict=True))
"""Model → the upstream that has it."""
TARGETS = (*OFF, Target("on", "auto", "claude-opus-4-6", "gpt-5.6-luna"))
"""And the gateway with all of it on."""
AGENT_TARGETS = (*OFF, Target("agents", "auto", "claude-opus-4-6", "gpt-5.6-luna"))


@dataclass(frozen=True)
class App:
    """A program in `apps/` that runs its cases and reports one JSON line for each."""

    name: str
    file: str
    cases: tuple[str, ...]
    venv: str = ""
    everywhere: bool = False
    """Its cases run over the backends of every dialect, not of OpenAI's and Anthropic's only."""

    @property
    def targets(self) -> tuple[Target, ...]:
        return (*TARGETS, *CLOUDS) if self.everywhere else TARGETS

    @property
    def command(self) -> list[str]:
        if self.file.endswith(".mjs"):  # Node finds packages beside the file only
            return ["node", str(INSTALLED / "node" / self.file)]
        return [str(INSTALLED / self.venv / "bin" / "python"), str(HERE / "apps" / self.file)]


_EVERYWHERE = ("openai-python", "openai-python-responses", "anthropic-python", "google-genai", "ollama-python", "boto3")
"""The SDKs of the vendors. The frameworks and Node's clients send what these send."""


def _app(name: str, file: str, cases: str, venv: str = "") -> App:
    return App(name, file, tuple(cases.split()), venv, name in _EVERYWHERE)


APPS = (
    _app(
        "openai-python",
        "openai_python.py",
        "plain plain_async twice long_conversation conversation stop stream stream_usage stream_helper tools "
        "tools_streamed tool_forced parse image raw_response batch moderations embeddings completions models "
        "wrong_key unknown_model spent refused_above broken_stream no_such_path",
        "vendors",
    ),
    _app(
        "openai-python-responses",
        "openai_responses_python.py",
        "twice plain stream tools parse later memory",
        "vendors",
    ),
    _app(
        "anthropic-python",
        "anthropic_python.py",
        "plain plain_async stream stream_helper tools tools_streamed tool_runner parse beta cache_control thinking "
        "image twice tools_twice long_conversation count_tokens raw_response batch models wrong_key unknown_model "
        "spent refused_above broken_stream",
        "vendors",
    ),
    _app(
        "google-genai",
        "google_genai_python.py",
        "plain usage named other_version by_full_name plain_async stream stream_usage stream_async "
        "several_at_a_time twice tools_twice system limits contents parts long_conversation chat "
        "chat_streamed image tools tools_streamed tool_with_json_schema tool_forced tool_forbidden "
        "tools_by_themselves schema json_schema thinking thoughts_hidden count_tokens embeds "
        "embeds_with_a_task two_tools one_tool_twice unicode length thinks_and_calls pdf wrong_key unknown_model spent "
        "refused_above refused_field broken_stream",
        "google",
    ),
    _app(
        "ollama-python",
        "ollama_python.py",
        "plain plain_async default_tag stream twice stream_twice system options conversation image tools "
        "tools_streamed two_tools one_tool_twice unicode length thinks_and_calls schema thinking thoughts_hidden "
        "listed shown wrong_key unknown_model spent "
        "refused_field broken_stream refused_above",
        "google",
    ),
    _app(
        "boto3",
        "boto3_python.py",
        "plain invokes invokes_a_stream invokes_with_a_wrong_body streams twice system limits conversation image "
        "document tools tools_streamed "
        "tool_forced two_tools one_tool_twice unicode length thinks_and_calls pdf thinking "
        "wrong_key unknown_model spent refused_field refused_above broken_stream",
        "others",
    ),
    _app(
        "langchain-python",
        "langchain_python.py",
        "chat_invoke chat_stream chat_tools chat_structured chat_structured_by_call chat_agent responses_invoke "
        "responses_stream responses_tools responses_structured responses_agent claude_invoke claude_stream "
        "claude_tools claude_structured claude_agent embeddings errors",
        "frameworks",
    ),
    _app(
        "litellm",
        "litellm_python.py",
        "openai_completion openai_stream openai_tools responses claude_completion claude_stream claude_tools "
        "embeddings errors",
        "frameworks",
    ),
    _app(
        "pydantic-ai",
        "pydantic_ai_python.py",
        "chat_run chat_stream chat_tools chat_structured responses_run responses_stream responses_tools "
        "responses_structured claude_run claude_stream claude_tools claude_structured unknown_model",
        "older",
    ),
    _app(
        "openai-agents",
        "openai_agents_python.py",
        "responses_run responses_tools responses_streamed responses_structured responses_handoff chat_run "
        "chat_tools chat_streamed chat_structured wrong_key",
        "frameworks",
    ),
    _app(
        "instructor",
        "instructor_python.py",
        "by_tool by_schema by_responses streamed claude",
        "frameworks",
    ),
    _app(
        "llama-index",
        "llamaindex_python.py",
        "chat_plain chat_stream chat_tools responses_plain responses_stream responses_tools claude_plain "
        "claude_stream claude_tools embeddings wrong_key",
        "older",
    ),
    _app(
        "llm",
        "llm_cli.py",
        "plain stream tools responses schema claude wrong_key",
        "older",
    ),
    _app(
        "aider",
        "aider_cli.py",
        "chat chat_plain messages",
        "aider",
    ),
    _app(
        "more-python",
        "more_python.py",
        "dspy smolagents haystack haystack_claude autogen_chat autogen_claude agno_chat agno_responses agno_claude "
        "strands_chat strands_claude semantic_kernel",
        "others",
    ),
    _app(
        "curl",
        "curl_cli.py",
        "chat chat_without_v1 chat_stream other_key_header messages messages_stream responses responses_stream "
        "embeddings_and_completions heads big_body compressed_both_ways compressed_stream openai_errors "
        "anthropic_errors",
        "vendors",
    ),
    _app(
        "openai-node",
        "openai_node.mjs",
        "plain stream stream_helper tools tool_runner parse responses responses_stream responses_tools "
        "responses_parse embeddings completions models errors broken_stream",
    ),
    _app(
        "anthropic-node",
        "anthropic_node.mjs",
        "plain stream stream_helper tools tool_runner parse thinking count_tokens errors broken_stream",
    ),
    _app(
        "vercel-ai",
        "vercel_ai.mjs",
        "responses_text responses_stream responses_tools responses_tools_streamed responses_object chat_text "
        "chat_stream chat_tools chat_tools_streamed chat_object claude_text claude_stream claude_tools "
        "claude_tools_streamed claude_object embeddings errors",
    ),
    _app(
        "langchain-js",
        "langchain_js.mjs",
        "chat_invoke chat_stream chat_tools chat_structured chat_agent responses_invoke responses_stream "
        "responses_tools responses_structured responses_agent claude_invoke claude_stream claude_tools "
        "claude_structured claude_agent embeddings wrong_key",
    ),
    _app(
        "openai-agents-node",
        "openai_agents_node.mjs",
        "responses_tools responses_streamed responses_structured responses_handoff chat_tools chat_streamed "
        "chat_structured chat_handoff",
    ),
)
