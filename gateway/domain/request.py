"""A parsed request. It contains the fields that the gateway uses; all other fields are passed on unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from gateway.domain.attachment import Attachment
from gateway.domain.body_scan import BodyScan, has_escaped_letter
from gateway.domain.continued import Continued, Notes
from gateway.domain.prompt_cache import CACHE_FIELDS
from gateway.runtime.off_loop import LARGE_BYTES

CacheControl = Literal["", "bypass", "refresh", "only"]
DialectName = str
"""Name of a dialect. `gateway/dialects/facts.py` registers the dialects of clients. `BackendDialectName` in
`gateway/domain/kinds.py` lists the dialects of backends."""
Role = Literal["system", "user", "assistant", "tool"]

_INPUT_FIELDS: Mapping[str, str] = {
    "openai_completions": "prompt",
    "openai_responses": "input",
    "openai_embeddings": "input",
}


@dataclass(slots=True)
class Turn:
    """One message of a request, in any dialect. `index`: the message's position in the request's list; -1 for a
    separate system prompt."""

    index: int
    role: Role
    text: str
    calls: tuple[str, ...] = ()
    """Ids of the tool calls in the message."""
    results: tuple[str, ...] = ()
    """Ids of the tool calls whose results are in the message."""
    images: int = 0
    files: int = 0
    """Number of documents, recordings and videos in the message, and of images that `images` does not count."""
    asides: bool = False
    """Whether the message contains other strings than text, calls and files, such as a name, a refusal or reasoning."""
    instructs: bool = False
    """Whether the user wrote text beside tool results. Coding agents send text in this way if a user types during a
    tool loop."""
    whole: str | None = field(default=None, init=False, compare=False, repr=False)
    """`text`, and in a further line the tool calls as JSON, as `context/measure.py` counts them. It is made at the
    first use and kept, because later requests of the conversation have the same turn."""
    counted_asides: tuple[tuple[int, int], dict[int, int]] | None = field(
        default=None, init=False, compare=False, repr=False
    )
    """The bytes of the strings that `asides` is about, as `context/attachments/asides.py` counts them, and the range of
    items that was read. They are counted at the first use and kept, because later requests of the conversation have the
    same turn."""


class Controls(NamedTuple):
    """The values of the request headers `x-thriftgate-*`, and of the headers that a LiteLLM proxy accepts."""

    cache: CacheControl = ""
    cache_tags: tuple[str, ...] = ()
    tier: str = ""
    deadline_s: float | None = None
    tags: Mapping[str, str] = MappingProxyType({})
    session: str = ""
    untouched: bool = False
    """`x-thriftgate-context: untouched`: send the context unchanged."""
    priority: Literal["", "batch"] = ""
    """`x-thriftgate-priority: batch`. A client can lower the priority that the policy gives, but cannot raise it."""
    hops: tuple[str, ...] = ()
    """`x-thriftgate-hops`: ids of the gateways that the request has passed, the first one first."""
    max_usd: Decimal | None = None
    """`x-thriftgate-max-usd`: maximum cost of the request."""
    cache_scope: str = ""
    """`x-thriftgate-cache-scope`: only requests with the same value share answers."""
    end_user: str = ""
    """The end user that a LiteLLM proxy names in a header. A name in the body has priority."""


NO_CONTROLS = Controls()


@dataclass(slots=True)
class CompletionRequest:
    """A parsed request. `raw`: its body, which is sent unchanged if the client and the backend use the same dialect."""

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
    """Whether the client asked for the chunk with the usage in a stream."""
    controls: Controls = NO_CONTROLS
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Client headers that are forwarded to a backend of the same dialect. Names are in lower case; credentials are
    never included."""
    parallel: int = 1
    """Number of answers requested (`n`)."""
    estimated_tokens: int | None = None
    """Estimated tokens of the whole input. The context package sets it once."""
    estimated_beside: int = 0
    """The part of `estimated_tokens` that belongs to images and attachments."""
    asides: Mapping[int, int] | None = None
    """Index of a turn → bytes of the strings that `Turn.asides` is about. The context package sets it."""
    attachments: list[Attachment] | None = None
    """The files that `Turn.files` counts. The context package sets it and opens each file once."""
    query: bytes = b""
    """The query of the URL (`beta=true`). It is sent to a backend of the same dialect."""
    path: str = ""
    """Path below the base URL of the backend. Only for the dialect `openai_other`, in which the client chooses the
    path."""
    one_context: bool = True
    """Whether the input is one text that can be measured, trimmed and fitted into a window. False for several prompts
    and for token ids."""
    one_model: bool = False
    """Whether results of different models cannot replace each other (vectors, tokens). Then routing cannot choose among
    models."""
    echoed: dict[str, Any] = field(default_factory=dict)
    """Field → the client's value. Only for fields that the gateway changed in `body` and that an answer repeats."""
    store: bool = False
    """Whether the answer must be stored, so that later requests can refer to it."""
    vector: Any | None = None
    """The embedder's vector of the last user message. It is computed at the first use and kept."""
    too_long_for: frozenset[str] = frozenset()
    """Names of the backends that refused the request because it is too long."""
    agent: str = ""
    """The coding agent that sent the request (`dialects/agents.py`); empty if no agent was recognised."""
    agent_session: str = ""
    """The id that the coding agent gave to its session."""
    output_cap: int | None = None
    """The limit of output tokens that the team's policy sets, if the client set none or a higher one. Then
    `max_output_tokens` is this limit."""
    as_chat: CompletionRequest | None = None
    """The same request in OpenAI's chat dialect. It is made by the first translation and kept."""
    scan: BodyScan | None = None
    """The scan of a large body. `raw` may have been changed since the scan."""
    continued: Continued | None = None
    """The conversation whose beginning an earlier request had too; None if it is new."""
    notes: Notes | None = None
    """The notes about the conversation of a large body, for later requests."""

    @property
    def is_large(self) -> bool:
        """Whether the new part of the body is so large that a thread should process it."""
        if len(self.raw) <= LARGE_BYTES:
            return False
        return self.continued is None or len(self.continued.rest) > LARGE_BYTES

    @property
    def known_scan(self) -> BodyScan | None:
        """The scan of the request's present body (`raw`); None if the body was not scanned, or was changed after the
        scan."""
        scan = self.scan
        return scan if scan is not None and scan.raw is self.raw else None

    def contains(self, word: bytes) -> bool:
        """Whether `word` occurs in the request's body (`raw`). `word` must be a member of `body_scan.WORDS`."""
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
        """The name of the dialect's field that contains the question, for error messages."""
        return _INPUT_FIELDS.get(self.dialect, "messages")

    @property
    def last_user(self) -> str:
        for turn in reversed(self.turns):
            if turn.role == "user":
                return turn.text
        return ""


MEDIA_MOST_TOKENS = 16_384
"""Maximum tokens of one generated image, speech or transcript. The largest image in high quality has about 6,200
tokens, the longest speech (4,096 characters, about five minutes) about 6,300, and a transcript at most 16,384."""
_SCORING = ("/moderations", "/rerank")
"""Ends of the paths of endpoints that answer with scores. They generate no text, so no output is billed."""


def most_asked(request: CompletionRequest) -> int | None:
    """The maximum output tokens of one answer that the request allows; None if it has no limit."""
    if request.dialect == "openai_other" and request.max_output_tokens is None:
        return 0 if request.path in _SCORING else MEDIA_MOST_TOKENS
    return request.max_output_tokens
