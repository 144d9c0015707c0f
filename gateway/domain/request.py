"""A parsed request: the fields that the gateway acts on; all others are carried unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.domain.attachment import Attachment

CacheControl = Literal["", "bypass", "refresh", "only"]
DialectName = str
"""Name of a dialect. `gateway/dialects/facts.py` registers those that clients speak, `BackendDialectName` in
`gateway/domain/kinds.py` lists those of backends."""
Role = Literal["system", "user", "assistant", "tool"]

_INPUT_FIELDS: Mapping[str, str] = {
    "openai_completions": "prompt",
    "openai_responses": "input",
    "openai_embeddings": "input",
}


@dataclass(slots=True)
class Turn:
    """One message, in any dialect. `index` is its place in the request's list; -1: a top-level system prompt."""

    index: int
    role: Role
    text: str
    calls: tuple[str, ...] = ()
    """Ids of the tool calls in it."""
    results: tuple[str, ...] = ()
    """Ids of the tool calls whose results are in it."""
    images: int = 0
    files: int = 0
    """Number of documents, recordings, videos, and images that `images` does not count."""
    asides: bool = False
    """Whether it has strings besides text, calls and files, such as a name, a refusal or reasoning."""
    instructs: bool = False
    """Whether the user wrote text next to the tool results. Coding agents send what the user types during a tool loop
    this way."""


@dataclass(frozen=True, slots=True)
class Controls:
    """The `x-thriftgate-*` request headers."""

    cache: CacheControl = ""
    cache_tags: tuple[str, ...] = ()
    tier: str = ""
    deadline_s: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    untouched: bool = False
    """`x-thriftgate-context: untouched`: send the context as it is."""
    priority: Literal["", "batch"] = ""
    """`x-thriftgate-priority: batch`; it can only lower the policy's priority."""


@dataclass(slots=True)
class CompletionRequest:
    """A parsed request. `raw` is forwarded unchanged if client and backend use the same dialect."""

    id: str
    dialect: DialectName
    raw: bytes
    body: dict[str, Any]
    model: str
    turns: list[Turn]
    stream: bool
    max_output_tokens: int | None
    temperature: float | None
    needs: frozenset[str]
    """The capabilities that it requires: tools, vision, json_schema, logprobs, reasoning."""
    wants_usage: bool = False
    """Whether the client asked for the usage chunk of a stream."""
    controls: Controls = Controls()
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Client headers that are forwarded to a backend of the same dialect (lower case), never credentials."""
    parallel: int = 1
    """Number of answers requested (`n`)."""
    estimated_tokens: int | None = None
    """Estimated tokens of the whole input; set once by the context package."""
    estimated_beside: int = 0
    """The part of `estimated_tokens` for images and attachments."""
    asides: Mapping[int, int] | None = None
    """Index of a turn → bytes of the strings that `Turn.asides` stands for; set by the context package."""
    attachments: list[Attachment] | None = None
    """The files that `Turn.files` counts; set by the context package, which opens each once."""
    query: bytes = b""
    """The URL's query (`beta=true`), forwarded to a backend of the same dialect."""
    path: str = ""
    """Path below the backend's base URL, for dialect `openai_other`, where the client chooses it."""
    one_context: bool = True
    """Whether the input is one text, which can be measured, trimmed and fitted into a window; not several prompts or
    token ids."""
    one_model: bool = False
    """Whether the result is usable with one model only (vectors, tokens), so that no choice among several is possible.
    """
    echoed: dict[str, Any] = field(default_factory=dict)
    """Original values of fields that an answer repeats and that the gateway changed in `body`."""
    store: bool = False
    """Whether to keep the answer so that a later request can name it."""
    vector: Any | None = None
    """Vector of the last user message from the embedder; set on first use and then reused."""
    as_chat: CompletionRequest | None = None
    """The same request in OpenAI's chat dialect; set by the first translation and then reused."""

    @property
    def input_field(self) -> str:
        """The field of its dialect that holds the question, for error messages."""
        return _INPUT_FIELDS.get(self.dialect, "messages")

    @property
    def last_user(self) -> str:
        for turn in reversed(self.turns):
            if turn.role == "user":
                return turn.text
        return ""


MEDIA_MOST_TOKENS = 16_384
"""Most tokens of one image, speech or transcript: the largest image in high quality has about 6,200 tokens, the longest
speech (4,096 characters, about five minutes) about 6,300, a transcript at most 16,384."""
_SCORING = ("/moderations", "/rerank")
"""Endpoints whose answers are scores: nothing is generated, so no output is billed."""


def most_asked(request: CompletionRequest) -> int | None:
    """Most output tokens of one answer, by the request's own limit; None: the request has none."""
    if request.dialect == "openai_other" and request.max_output_tokens is None:
        return 0 if request.path in _SCORING else MEDIA_MOST_TOKENS
    return request.max_output_tokens
