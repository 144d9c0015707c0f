"""The settings that each client needs to use the gateway. They are lines to paste or a file to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

ANTHROPIC, OPENAI = "/v1/messages", "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Connection:
    """The address, key and model with which a client uses the gateway."""

    url: str
    """The gateway's address without /v1."""
    key: str
    model: str


@dataclass(frozen=True, slots=True)
class Client:
    """How to configure one client."""

    title: str
    path: str
    """Path of the gateway's endpoint that the client calls."""
    lines: Callable[[Connection], str]
    """Returns the lines to paste."""
    file: str = ""
    """Path of the client's settings file below the home directory; empty if it cannot be written."""
    merged: Callable[[str, Connection], str] | None = None
    """A function from (text of the file, connection) to the new text. Raises ValueError if the file cannot be merged.
    None: there is no such file."""


def _exports(**variables: str) -> str:
    return "\n".join(f"export {name}={value}" for name, value in variables.items())


def _anthropic(at: Connection) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": at.url,
        "ANTHROPIC_AUTH_TOKEN": at.key,
        "ANTHROPIC_MODEL": at.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": at.model,
    }


def _claude_code_file(text: str, at: Connection) -> str:
    settings = _json_object(text)
    env = settings.setdefault("env", {})
    if not isinstance(env, dict):
        raise ValueError("its `env` is not an object")
    env.update(_anthropic(at))
    return orjson.dumps(settings, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _opencode(at: Connection) -> dict[str, object]:
    options = {"baseURL": f"{at.url}/v1", "apiKey": at.key}
    return {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {at.model: {}}}


def _opencode_file(text: str, at: Connection) -> str:
    settings = _json_object(text)
    providers = settings.setdefault("provider", {})
    if not isinstance(providers, dict):
        raise ValueError("its `provider` is not an object")
    providers["thriftgate"] = _opencode(at)
    return orjson.dumps(settings, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _json_object(text: str) -> dict[str, object]:
    try:
        found = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not plain JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def _codex(at: Connection) -> str:
    return f"""\
# ~/.codex/config.toml
model = "{at.model}"
model_provider = "thriftgate"

[model_providers.thriftgate]
name = "Thriftgate"
base_url = "{at.url}/v1"
env_key = "THRIFTGATE_KEY"
wire_api = "responses"

# in the shell
export THRIFTGATE_KEY={at.key}"""


def _continue(at: Connection) -> str:
    return f"""\
# ~/.continue/config.yaml
name: Thriftgate
version: 0.0.1
schema: v1
models:
  - name: Thriftgate
    provider: openai
    model: {at.model}
    apiBase: {at.url}/v1
    apiKey: {at.key}"""


def _form(at: Connection) -> str:
    return f"Provider  OpenAI Compatible\nBase URL  {at.url}/v1\nAPI key   {at.key}\nModel     {at.model}"


def _langchain(at: Connection) -> str:
    return f"""\
from langchain_openai import ChatOpenAI

model = ChatOpenAI(base_url="{at.url}/v1", api_key="{at.key}", model="{at.model}")"""


def _qwen(at: Connection) -> str:
    variables = _exports(OPENAI_BASE_URL=f"{at.url}/v1", OPENAI_API_KEY=at.key, OPENAI_MODEL=at.model)
    return f"{variables}\nqwen --auth-type openai"


CLIENTS: dict[str, Client] = {
    "claude-code": Client(
        "Claude Code", ANTHROPIC, lambda at: _exports(**_anthropic(at)), ".claude/settings.json", _claude_code_file
    ),
    "codex": Client("Codex CLI", OPENAI, _codex),
    "opencode": Client(
        "opencode",
        OPENAI,
        lambda at: "// opencode.json\n" + _opencode_file("", at).rstrip(),
        ".config/opencode/opencode.json",
        _opencode_file,
    ),
    "qwen-code": Client("Qwen Code", OPENAI, _qwen),
    "aider": Client(
        "aider",
        OPENAI,
        lambda at: (
            _exports(OPENAI_API_BASE=f"{at.url}/v1", OPENAI_API_KEY=at.key) + f"\naider --model openai/{at.model}"
        ),
    ),
    "continue": Client("Continue", OPENAI, _continue),
    "cursor": Client("Cursor", OPENAI, _form),
    "cline": Client("Cline", OPENAI, _form),
    "openwebui": Client(
        "Open WebUI",
        OPENAI,
        lambda at: _exports(OPENAI_API_BASE_URL=f"{at.url}/v1", OPENAI_API_KEY=at.key),
    ),
    "langchain": Client("LangChain", OPENAI, _langchain),
    "env": Client(
        "programs that read OpenAI's and Anthropic's variables",
        OPENAI,
        lambda at: _exports(
            OPENAI_BASE_URL=f"{at.url}/v1",
            OPENAI_API_KEY=at.key,
            ANTHROPIC_BASE_URL=at.url,
            ANTHROPIC_AUTH_TOKEN=at.key,
        ),
    ),
}


def write(client: Client, home: Path, at: Connection) -> Path:
    """Merge the settings into the client's file below `home`, and return its path. A copy of the old file is kept. Only
    for clients with `client.merged`. Raises ValueError if the file cannot be merged, and OSError."""
    assert client.merged is not None
    path = home / client.file
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    try:
        text = client.merged(before, at)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; paste the lines instead") from error
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if before and before != text:
        copy = path.with_name(f"{path.name}.before-thriftgate")
        copy.touch(mode=0o600)
        copy.write_text(before, encoding="utf-8")
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)  # the file contains the key, so only its owner may read it
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return path
