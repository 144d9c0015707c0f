"""One exchange to record: the client's request, and how the servers behind the gateway answer it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from tests.fakes.provider_script import Reply, Step

Spoken = Literal["chat", "completions", "messages", "responses", "openai"]
"""What a server speaks: one dialect, or (`openai`) what OpenAI's servers speak beside chat."""

PATHS: dict[Spoken, tuple[str, ...]] = {
    "chat": ("/v1/chat/completions",),
    "completions": ("/v1/completions",),
    "messages": ("/v1/messages", "/v1/messages/count_tokens"),
    "responses": ("/v1/responses",),
    "openai": (
        *("/v1/embeddings", "/v1/moderations", "/v1/rerank", "/v1/audio/speech", "/v1/audio/transcriptions"),
        *("/v1/images/generations",),
    ),
}
KINDS: dict[Spoken, str] = {
    "chat": "kind: openai, dialects: [openai_chat]",
    "completions": "kind: openai, dialects: [openai_completions]",
    "messages": "kind: anthropic",
    "responses": "kind: openai, dialects: [openai_responses]",
    "openai": "kind: openai, dialects: [openai_embeddings, openai_other]",
}
MODELS: dict[Spoken, str] = {
    "chat": "gpt-4.1-mini",
    "completions": "gpt-3.5-turbo-instruct",
    "messages": "claude-sonnet-4-5",
    "responses": "gpt-5-mini",
    "openai": "text-embedding-3-small",
}


RESPONSE_ID = "RESPONSE_ID"


@dataclass(frozen=True)
class Server:
    """A backend of the gateway, and what its server answers. `name` is also the first part of its base URL's path."""

    name: str
    speaks: Spoken
    step: Step = field(default_factory=Reply)
    kind: str = ""
    """Instead of `KINDS[speaks]`, as YAML."""
    model: str = ""
    """Instead of `MODELS[speaks]`."""
    price: str = "{input: 2, cached_input: 0.5, output: 8}"
    more: str = "capabilities: [tools, vision, json_schema, reasoning, logprobs]"
    """Further settings, as YAML."""
    open_to: str = ""
    """A team that alone may use it; empty: all."""


@dataclass(frozen=True)
class Case:
    """A request of a client. Cases that share a server are replayed in their order."""

    name: str
    path: str
    body: bytes = b""
    servers: tuple[Server, ...] = ()
    team: str = "plain"
    """Whose key is sent; empty: none."""
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    """Beside host, key, content-type and content-length."""
    content_type: str = "application/json"
    after: str = ""
    """Name of an earlier case, the id of whose response replaces `RESPONSE_ID` in path and body."""
    own_waits: bool = False
    """The gateway itself works out how long the client has to wait, which depends on the time of day."""


def server_name(*words: str) -> str:
    """A name of a server, out of words that a reader understands."""
    return ".".join(re.sub(r"[^A-Za-z0-9-]", "", word.replace(" ", "-").replace("_", "-")) for word in words)


def json_body(**fields: Any) -> bytes:
    """As the vendors' libraries write it: compact, in the order given."""
    return orjson.dumps(fields)
