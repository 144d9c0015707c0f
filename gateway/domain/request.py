"""A parsed request: the fields that the gateway acts on; the rest is carried untouched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.domain.attachment import Attachment

CacheControl = Literal["", "bypass", "refresh", "only"]
ClientDialectName = Literal[
    "openai_chat",
    "openai_completions",
    "openai_responses",
    "openai_embeddings",
    "openai_other",
    "anthropic_messages",
    "gemini_generate",
]
"""Dialects that clients speak, and backends too."""
DialectName = Literal[ClientDialectName, "bedrock_converse"]
"""Beside them those that only backends speak."""
Role = Literal["system", "user", "assistant", "tool"]

_INPUT_FIELDS: Mapping[str, str] = {
    "openai_completions": "prompt",
    "openai_responses": "input",
    "openai_embeddings": "input",
}


@dataclass(slots=True)
class Turn:
    """One message, in any dialect. `index` is its place in the request's own list; -1: a top-level system prompt."""

    index: int
    role: Role
    text: str
    calls: tuple[str, ...] = ()
    """Ids of the tool calls that it makes."""
    results: tuple[str, ...] = ()
    """Ids of the tool calls that it answers."""
    images: int = 0
    files: int = 0
    """Documents, recordings and videos, and images of kinds that `images` leaves out."""
    asides: bool = False
    """Has it strings beside its text, calls and files, such as a name, a refusal or reasoning?"""
    instructs: bool = False
    """Did the user write something beside the results that it holds? A coding agent sends so what the user types while
    it works."""


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
    """A parsed request. `raw` is forwarded unchanged where client and backend use the same dialect."""

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
    """Capabilities that it cannot do without: tools, vision, json_schema, logprobs, reasoning."""
    wants_usage: bool = False
    """Did the client ask for the usage chunk of a stream?"""
    controls: Controls = Controls()
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Client headers that a backend of the same dialect should see (lower case), never credentials."""
    parallel: int = 1
    """Answers asked for (`n`)."""
    estimated_tokens: int | None = None
    """Estimated tokens of the whole input; set by the context package, so that it is estimated once."""
    estimated_beside: int = 0
    """Of `estimated_tokens`: for images and attachments."""
    asides: Mapping[int, int] | None = None
    """Index of a turn → bytes of the strings that `Turn.asides` stands for; set by the context package."""
    attachments: list[Attachment] | None = None
    """The files that `Turn.files` counts; set by the context package, which opens each once."""
    query: bytes = b""
    """As it stood in the URL (`beta=true`); a backend of the same dialect sees it."""
    path: str = ""
    """Path below the backend's base URL, for the dialect `openai_other`, where the client chooses it."""
    one_context: bool = True
    """Is the input one text, to be measured, trimmed and fitted into a window? Not several prompts, nor tokens."""
    one_model: bool = False
    """Vectors and tokens of one model mean nothing to another: this one is never chosen among several."""
    told: dict[str, Any] = field(default_factory=dict)
    """Fields that an answer repeats of its request, where the gateway had to change them in `body`."""
    store: bool = False
    """Is its answer to be kept, so that a later request can name it?"""
    vector: Any | None = None
    """Vector of the last user message, from the embedder; set by its first user and then reused."""
    as_chat: CompletionRequest | None = None
    """The same request in OpenAI's chat dialect; set by the first translation and then reused."""

    @property
    def input_field(self) -> str:
        """Where its dialect has what it asks, for errors to name."""
        return _INPUT_FIELDS.get(self.dialect, "messages")

    @property
    def last_user(self) -> str:
        for turn in reversed(self.turns):
            if turn.role == "user":
                return turn.text
        return ""


MEDIA_MOST_TOKENS = 16_384
"""Of one image, one speech or one transcript: the largest image in high quality has some 6,200 tokens, the longest
speech (4,096 characters, about five minutes) some 6,300, a transcript at most 16,384."""
_SCORING = ("/moderations", "/rerank")
"""Endpoints whose answers are scores: nothing is generated, so no output is billed."""


def most_asked(request: CompletionRequest) -> int | None:
    """Output tokens of one answer at most, by what is asked for; None: the request does not say."""
    if request.dialect == "openai_other" and request.max_output_tokens is None:
        return 0 if request.path in _SCORING else MEDIA_MOST_TOKENS
    return request.max_output_tokens
