"""Remembers which backend has a conversation's prompt in its cache, and for how long.

A provider charges less for the beginning of a prompt if it has read this beginning recently. So a conversation that
changes its backend loses this saving. After some time the provider forgets the beginning. Each worker remembers only
its own sessions. If a session reaches another worker, that worker assumes that nothing is cached, so it never
underestimates the cost.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter

from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import LONG_S, SHORT_S, STEP_TOKENS, rules_of
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Prefix

MOST_SESSIONS = 8192
"""Maximum number of sessions, of about 500 bytes each. The sessions with the oldest update are forgotten."""
MOST_BACKENDS = 4
"""Maximum number of backends that are remembered per session."""
LEAST_TOKENS = 1024
"""Minimum tokens of a prompt that is remembered. Providers with automatic caching do not cache shorter prompts. On
other servers, the cache saves little for shorter prompts."""
OWN_S = 600.0
"""Assumed seconds for which the operator's own servers keep a prefix. In reality, such a server evicts a prefix when
the server needs the memory."""
_NEWEST = 0.2
"""Weight of the newest answer in a moving average. The average is of the share of expected cached tokens that a backend
reports as cached."""
_DIGEST_BYTES = 16
_MOST_LENGTHS = 256
"""Maximum number of turns whose lengths are remembered. So many are enough to notice that a client has rewritten its
history, because such clients change the beginning of the history."""
_MOST_CHARACTERS = 4096
"""Maximum characters of a turn that are hashed to distinguish conversations."""
_TEXT = attrgetter("text")


@dataclass(slots=True)
class Warm:
    """The beginning of a session's prompt that one backend has in its cache. `tokens`: its length in tokens. `lengths`:
    the length of each of its turns in characters."""

    tokens: int
    until: float
    """Monotonic time at which the cached prefix expires."""
    lengths: tuple[int, ...]


@dataclass(slots=True)
class Session:
    """One conversation, as a worker remembers it."""

    warm: dict[str, Warm]
    """Backend → its cached prefix."""
    last: str
    """The backend of the latest answer."""
    until: float
    """Monotonic time at which the session is forgotten."""


class Sessions:
    """Implements SessionView. Each object belongs to one event loop."""

    def __init__(self, *, most: int = MOST_SESSIONS, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._monotonic = most, monotonic
        self._known: OrderedDict[bytes, Session] = OrderedDict()
        self._read: dict[str, float] = {}
        """Backend → moving average of the tokens that the backend reported as cached, as a share of the tokens that
        were expected to be cached."""
        self._counts = {"stayed": 0, "warm": 0}

    def warm_tokens(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        """The number of the `input_tokens` that `backend` will probably read from its cache. 0 if the conversation no
        longer begins with the cached text."""
        return round(self._remembered(prefix, backend, input_tokens) * self._read.get(backend.name, 1.0))

    def warmest(self, prefix: Prefix, input_tokens: int) -> int:
        """The highest number of the `input_tokens` that any single backend probably has in its cache."""
        session = self._known.get(prefix.session)
        if session is None:
            return 0
        return max([self._kept_of(warm, prefix, input_tokens) for warm in session.warm.values()], default=0)

    def holder(self, prefix: Prefix) -> str:
        """The backend that must continue the session, because it made the tool calls whose results are in the request.
        Empty if any backend may continue."""
        if not prefix.in_tool_loop:
            return ""
        session = self._known.get(prefix.session)
        if session is None or session.until < self._monotonic():
            return ""
        self._counts["stayed"] += 1
        return session.last

    def learn(self, record: Record) -> None:
        """Store which backend gave a complete answer, and how much of the prompt is now in the backend's cache."""
        route, attempt = record.route, record.served_by
        if route is None or route.prefix is None or attempt is None or attempt.outcome != "ok":
            return
        usage = attempt.usage
        if usage is None or not route.prefix.lengths:
            return
        prefix, backend, now = route.prefix, attempt.backend, self._monotonic()
        if attempt.trimmed_tokens and not attempt.frozen:
            # the next request has another prefix, but must still return to this backend after tool calls
            warm, keep_s = 0, rules_of(backend.model).ttl_s if backend.hosted else OWN_S
        else:
            self._compare(prefix, attempt, usage)
            warm, keep_s = _kept(backend, usage)
        if warm == 0 and record.finish != "tool_calls":
            return
        known = self._known.pop(prefix.session, None) or Session({}, backend.name, now)
        known.last, known.until = backend.name, max(known.until, now + keep_s)
        known.warm.pop(backend.name, None)
        if warm:
            known.warm[backend.name] = Warm(warm, now + keep_s, prefix.lengths)
        if len(known.warm) > MOST_BACKENDS:
            known.warm.pop(next(iter(known.warm)))
        self._known[prefix.session] = known
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def stats(self) -> dict[str, int]:
        return {"sessions": len(self._known), **{f"sessions_{name}": count for name, count in self._counts.items()}}

    def _remembered(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        session = self._known.get(prefix.session)
        warm = session.warm.get(backend.name) if session is not None else None
        return 0 if warm is None else self._kept_of(warm, prefix, input_tokens)

    def _kept_of(self, warm: Warm, prefix: Prefix, input_tokens: int) -> int:
        if warm.until < self._monotonic():
            return 0
        if prefix.lengths[: len(warm.lengths)] != warm.lengths:  # the client has rewritten its history
            return 0
        return min(warm.tokens, input_tokens)

    def _compare(self, prefix: Prefix, attempt: Attempt, usage: Usage) -> None:
        """Compare the number of cached tokens that was expected with the number that the backend reports. The ratio of
        the two corrects later expectations."""
        expected = self._remembered(prefix, attempt.backend, usage.all_input)
        if expected and not usage.estimated:
            name, self._counts["warm"] = attempt.backend.name, self._counts["warm"] + 1
            share = min(1.0, usage.cached_tokens / expected)
            before = self._read.get(name, 1.0)
            self._read[name] = before + (share - before) * _NEWEST


def prefix_of(request: CompletionRequest, key_id: str, session: str = "") -> Prefix:
    """The conversation to which a request of the key `key_id` belongs.

    It is identified by `session` or by the request's `x-thriftgate-session` or `prompt_cache_key`. Without these, it is
    identified by the system prompt, the first question and `metadata.user_id`. The conversation of an agent is
    identified by session id, model and first question.
    """
    turns = request.turns
    own = blake2b(key_id.encode(), digest_size=_DIGEST_BYTES)
    own_id = request.agent_session if not request.controls.session else ""
    if not own_id and (named := session or request.controls.session or _text_field(request.body, "prompt_cache_key")):
        own.update(b"\0named\0" + named.encode("utf-8", "surrogatepass"))
    else:
        user = _text_field(request.body.get("metadata"), "user_id") if not own_id else f"{own_id}\0{request.model}"
        own.update(b"\0" + user.encode("utf-8", "surrogatepass"))
        for turn in turns:
            if own_id and turn.role == "system":
                continue
            own.update(f"\0{turn.role}\0{turn.text[:_MOST_CHARACTERS]}".encode("utf-8", "surrogatepass"))
            if turn.role == "user":
                break
    last = turns[-1] if turns else None
    return Prefix(
        own.digest(),
        tuple(map(len, map(_TEXT, turns[:_MOST_LENGTHS]))),
        last is not None and (last.role == "tool" or bool(last.results)),
        len(turns),
    )


def _text_field(section: object, field: str) -> str:
    value = section.get(field) if isinstance(section, dict) else None
    return value if isinstance(value, str) else ""


def _kept(backend: Backend, usage: Usage) -> tuple[int, float]:
    """The number of the prompt's tokens that are now in the backend's cache, and the seconds for which they stay."""
    if backend.facts.caches_marked_only:
        written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
        return usage.cached_tokens + written, LONG_S if usage.cache_write_1h_tokens else SHORT_S
    tokens, keep_s = usage.all_input, rules_of(backend.model).ttl_s if backend.hosted else OWN_S
    if tokens < LEAST_TOKENS:
        return 0, keep_s
    return tokens // STEP_TOKENS * STEP_TOKENS if backend.hosted else tokens, keep_s
