"""A parsed request: the fields that the gateway uses. All other fields are kept unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.domain.attachment import Attachment
from gateway.domain.body_scan import BodyScan, has_escaped_letter
from gateway.domain.prompt_cache import CACHE_FIELDS

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
    """One message, in any dialect. `index` is its position in the request's list; -1: a top-level system prompt."""

    index: int
    role: Role
    text: str
    calls: tuple[str, ...] = ()
    """Ids of the tool calls in it."""
    results: tuple[str, ...] = ()
    """Ids of the tool calls whose results are in it."""
    images: int = 0
    files: int = 0
    """Number of documents, recordings and videos, and of images that are not counted in `images`."""
    asides: bool = False
    """Whether it contains other strings besides text, calls and files, such as a name, a refusal or reasoning."""
    instructs: bool = False
    """Whether the user wrote text beside the tool results. Coding agents send text in this way that a user types during
    a tool loop."""


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
    """`x-thriftgate-context: untouched`: send the context unchanged."""
    priority: Literal["", "batch"] = ""
    """`x-thriftgate-priority: batch`. A client can only lower the priority that the policy gives."""


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
    """The capabilities that the request needs: tools, vision, json_schema, logprobs, reasoning."""
    wants_usage: bool = False
    """Whether the client asked for the usage chunk of a stream."""
    controls: Controls = Controls()
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Client headers that are forwarded to a backend of the same dialect. Names are in lower case; credentials are
    never included."""
    parallel: int = 1
    """Number of answers requested (`n`)."""
    estimated_tokens: int | None = None
    """Estimated tokens of the whole input. Set once, by the context package."""
    estimated_beside: int = 0
    """The part of `estimated_tokens` that is for images and attachments."""
    asides: Mapping[int, int] | None = None
    """Index of a turn → bytes of the strings to which `Turn.asides` refers. Set by the context package."""
    attachments: list[Attachment] | None = None
    """The files that `Turn.files` counts. Set by the context package, which opens each file once."""
    query: bytes = b""
    """The query of the URL (`beta=true`), forwarded to a backend of the same dialect."""
    path: str = ""
    """Path below the backend's base URL, for the dialect `openai_other`, in which the client chooses the path."""
    one_context: bool = True
    """Whether the input is one text, which can be measured, trimmed and fitted into a window. It is not for several
    prompts or token ids."""
    one_model: bool = False
    """Whether the result is usable with one model only (vectors, tokens), so that routing cannot choose among several.
    """
    echoed: dict[str, Any] = field(default_factory=dict)
    """Field → original value, for fields that an answer repeats and that the gateway changed in `body`."""
    store: bool = False
    """Whether to store the answer, so that later requests can refer to it."""
    vector: Any | None = None
    """The embedder's vector of the last user message. Set on first use and then reused."""
    too_long_for: frozenset[str] = frozenset()
    """Names of the backends that refused the request because of its length."""
    agent: str = ""
    """The coding agent that sent the request (`dialects/agents.py`); empty: none is recognised."""
    agent_session: str = ""
    """The id that the agent gave to its session."""
    as_chat: CompletionRequest | None = None
    """The same request in OpenAI's chat dialect; set by the first translation and then reused."""
    scan: BodyScan | None = None
    """The scan of a large body, before `raw` was changed."""

    @property
    def known_scan(self) -> BodyScan | None:
        """The scan of the present `raw`; None: there is none, or `raw` was changed."""
        scan = self.scan
        return scan if scan is not None and scan.raw is self.raw else None

    def contains(self, word: bytes) -> bool:
        """Whether a member of `body_scan.WORDS` occurs in `raw`."""
        scan = self.known_scan
        return word in scan.words if scan is not None else self.raw.rfind(word) >= 0

    @property
    def asks_for_cache(self) -> bool:
        """Whether the body may contain a field that asks the provider to cache the prompt."""
        return any(map(self.contains, CACHE_FIELDS))

    @property
    def has_escaped_letter(self) -> bool:
        scan = self.known_scan
        return has_escaped_letter(self.raw) if scan is None else scan.escaped_letter

    @property
    def input_field(self) -> str:
        """The field of the dialect that contains the question, for error messages."""
        return _INPUT_FIELDS.get(self.dialect, "messages")

    @property
    def last_user(self) -> str:
        for turn in reversed(self.turns):
            if turn.role == "user":
                return turn.text
        return ""


MEDIA_MOST_TOKENS = 16_384
"""Maximum tokens of one image, speech or transcript. The largest image in high quality has about 6,200 tokens, the
longest speech (4,096 characters, about five minutes) about 6,300, and a transcript at most 16,384."""
_SCORING = ("/moderations", "/rerank")
"""Endpoints whose answers are scores. They generate nothing, so no output is billed."""


def most_asked(request: CompletionRequest) -> int | None:
    """Maximum output tokens of one answer by the request's own limit; None if the request has no limit."""
    if request.dialect == "openai_other" and request.max_output_tokens is None:
        return 0 if request.path in _SCORING else MEDIA_MOST_TOKENS
    return request.max_output_tokens
