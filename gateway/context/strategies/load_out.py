"""Leaves out the definitions of tools that a long session has never used (`context.unused_tools`).

Definitions are at the beginning of the prompt. If one is left out, the provider must write the whole prompt into its
cache again. Definitions are therefore left out only when the cache has expired anyway. They stay out, byte for byte,
until one of them seems to be needed. Then all of them are sent again, for the rest of the session.

The decision for a session is stored on the state server, so that all workers know it. If the stored decision is lost,
the whole request is sent.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import orjson

from gateway.context import measure
from gateway.context.cuts.session import Shape, shapes_of
from gateway.context.strategies.experiments import asks_for_thinking
from gateway.context.strategies.relevance import contains_thinking, is_exempt
from gateway.context.strategies.tool_lists import has_room, requires, tools_of, without
from gateway.domain.backend import Backend
from gateway.domain.prompt_cache import LONG_S, SHORT_S, rules_of
from gateway.domain.request import CompletionRequest, Turn
from gateway.domain.routing.route import ContextPlan, Prefix
from gateway.domain.tenant import Tenant
from gateway.errors import StateUnavailable
from gateway.runtime.off_loop import OffLoop

LEAST_REQUESTS = 20
"""Minimum requests of a session before definitions are left out. In the first half of the recorded sessions, 10 of 20
sessions with a pause after 20 requests later called a tool for the first time; after 5 requests, 17 of 26."""
_COMES_BACK = 0.5
"""Expected probability that the definitions are needed later. The whole prompt is then written again."""
_LEAST_TOKENS = 1000
"""Minimum tokens of the definitions that are left out together."""
_MOST_REMAINING = 40
"""Maximum number of further requests that are expected. The expected number is the number of requests so far, up to
this maximum."""
_MOST_SESSIONS = 2048
_ON_LOOP_CHARACTERS = 32_000
"""Maximum number of new characters that are searched on the event loop."""
_DAY_S = 86400.0
_OUT, _BACK = "out", "back"


class Memory(Protocol):
    """Stores the decision for each session, and knows whether the session's prompt is still in the provider's
    cache.
    """

    async def read(self, session: bytes, backend: str) -> tuple[bytes | None, bool]:
        """Return (the decision that was stored last, whether the prompt is still cached). Raises StateUnavailable."""
        ...

    async def write(self, session: bytes, backend: str, decided: bytes, cached_s: float) -> None:
        """Store `decided` for a day. `cached_s`: seconds for which the prompt is cached from now on. Raises
        StateUnavailable."""
        ...


class OwnMemory:
    """Implements `Memory` for a single process, without the state server."""

    def __init__(self, monotonic: Callable[[], float], most: int = _MOST_SESSIONS) -> None:
        self._monotonic, self._most = monotonic, most
        self._known: OrderedDict[tuple[bytes, str], tuple[bytes, float]] = OrderedDict()

    async def read(self, session: bytes, backend: str) -> tuple[bytes | None, bool]:
        decided, until = self._known.get((session, backend), (None, 0.0))
        return decided, self._monotonic() < until

    async def write(self, session: bytes, backend: str, decided: bytes, cached_s: float) -> None:
        self._known.pop((session, backend), None)
        self._known[session, backend] = decided, self._monotonic() + cached_s
        if len(self._known) > self._most:
            self._known.popitem(last=False)


@dataclass(slots=True)
class _Decided:
    """The decision for one session. It contains digests of names, but no text of the conversation."""

    tools: str
    """Digest of the client's tool list."""
    state: str = ""
    """`out`: the tools in `names` are left out. `back`: they were needed, so nothing is left out any more."""
    names: frozenset[str] = frozenset()
    """Digests of the names of the tools that are left out."""

    def dumped(self) -> bytes:
        return orjson.dumps([self.tools, self.state, sorted(self.names)])


@dataclass(slots=True)
class _Session:
    """The facts that a worker has read from a session's history."""

    shapes: list[Shape] = field(default_factory=list)
    names: frozenset[str] = frozenset()
    """Names of the tools for which the history was searched."""
    used: set[str] = field(default_factory=set)
    """Names of tools that were called, or that a text names."""
    decided: bytes | None = None
    """The decision that this worker stored last. Used while the state server is unavailable."""


class LoadOut:
    """Chooses the tool definitions that are left out. The object belongs to one event loop."""

    def __init__(
        self, memory: Memory, off_loop: OffLoop | None = None, switched_off: Callable[[str], bool] = lambda team: False
    ) -> None:
        self._memory, self._off_loop, self._switched_off = memory, off_loop or OffLoop(), switched_off
        self._known: OrderedDict[tuple[bytes, str], _Session] = OrderedDict()
        self._counts = {"tools_left_out": 0, "tools_came_back": 0, "tools_reduced_requests": 0}

    def stats(self) -> dict[str, int]:
        return dict(self._counts)

    async def reduced(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix
    ) -> CompletionRequest:
        """The request without the definitions that are left out. If none is left out, the unchanged request."""
        tools = tools_of(request) if self._may(request, tenant, backend) else {}
        if not tools:
            return request
        key = prefix.session, backend.name
        session = self._known.setdefault(key, _Session())
        self._known.move_to_end(key)
        if len(self._known) > _MOST_SESSIONS:
            self._known.popitem(last=False)
        await self._read(session, request, tools)
        before, cached = await self._before(key, session)
        now = _decided(before, request, tools, session.used, cached, backend)
        session.decided = now.dumped()
        self._counts["tools_came_back"] += before is not None and (before.state, now.state) == (_OUT, _BACK)
        names = [name for name in tools if _digest(name) in now.names] if now.state == _OUT else []
        if not names:
            return request
        self._counts["tools_left_out"] += before is None or before.state != _OUT
        self._counts["tools_reduced_requests"] += 1
        return without(request, names)

    async def planned(
        self, client: CompletionRequest, sent: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix,
        plan: ContextPlan,
    ) -> None:  # fmt: skip
        """Store the decision for the session. `sent`: the request that is about to be sent for `client`, the
        client's request.
        """
        session = self._known.get((prefix.session, backend.name))
        if session is None or session.decided is None or not self._may(client, tenant, backend):
            return
        lives_s = cached_s(sent, tenant, backend, plan)
        try:
            await self._memory.write(prefix.session, backend.name, session.decided, lives_s)
        except StateUnavailable:  # other workers then send the whole request
            return

    def _may(self, request: CompletionRequest, tenant: Tenant, backend: Backend) -> bool:
        return backend.hosted and not (self._switched_off(tenant.team) or is_exempt(request, tenant))

    async def _before(self, key: tuple[bytes, str], session: _Session) -> tuple[_Decided | None, bool]:
        try:
            stored, cached = await self._memory.read(*key)
        except StateUnavailable:
            stored, cached = session.decided, True
        return (None if stored is None else _loaded(stored)), cached

    async def _read(self, session: _Session, request: CompletionRequest, tools: Iterable[str]) -> None:
        """Search the new turns for names of tools."""
        shapes = shapes_of(request.turns)
        known = len(session.shapes)
        if shapes[:known] != session.shapes or not session.names.issuperset(tools):
            known = 0  # the client has rewritten its history, or offers other tools
        session.shapes, session.names = shapes, frozenset(tools)
        new = [turn for turn in request.turns[known:] if turn.role != "system"]
        if sum(len(turn.text) for turn in new) > _ON_LOOP_CHARACTERS:
            session.used |= await self._off_loop.run(_named, request, new, tuple(tools))
        else:
            session.used |= _named(request, new, tools)


def unused(request: CompletionRequest) -> dict[str, int]:
    """Tool definitions that nothing in the conversation has used: name → tokens. A tool counts as used if a call or a
    text contains its name.

    Empty if no tool was called, because at least one definition must stay.
    """
    tools = tools_of(request)
    used = _named(request, [turn for turn in request.turns if turn.role != "system"], tools)
    return {name: size for name, size in tools.items() if name not in used} if used else {}


def attach(plan: ContextPlan, client: CompletionRequest, sent: CompletionRequest) -> None:
    """Convert `plan`, which was made for the reduced request `sent`, into a plan for the client's request."""
    plan.instead = sent
    plan.frozen = plan.frozen or not plan.touched
    plan.tokens_before += max(0, measure.estimated(client) - measure.estimated(sent))
    client.attachments = sent.attachments
    if client.dialect == "openai_responses":  # the provider's answer repeats the tools
        client.echoed = {**client.echoed, "tools": client.body["tools"]}


def _decided(
    before: _Decided | None, request: CompletionRequest, tools: dict[str, int], used: set[str], cached: bool,
    backend: Backend,
) -> _Decided:  # fmt: skip
    """The decision for this request. `before`: the decision for the session's last request.

    `used`: names of tools that were called or named. `cached`: whether the prompt is still in the provider's cache.
    """
    listed = _digest_of(request.body["tools"])
    if before is None:
        return _Decided(listed)
    if before.state == _OUT:
        names = [name for name in tools if _digest(name) in before.names]
        changed = before.tools != listed or _thinks(request)
        back = changed or requires(request, names) or not used.isdisjoint(names)
        return _Decided(listed, _BACK) if back else before
    if before.state == _BACK or cached or _thinks(request):
        return _Decided(listed, before.state)
    names = [name for name in tools if name not in used]
    if len(names) == len(tools) or requires(request, names):
        return _Decided(listed)
    if rules_of(backend.model).kind != "marks" and not has_room(request, names):  # Anthropic has no limit
        return _Decided(listed)
    if not _pays(request, sum(tools[name] for name in names), backend):
        return _Decided(listed)
    return _Decided(listed, _OUT, frozenset(map(_digest, names)))


def _thinks(request: CompletionRequest) -> bool:
    """Whether the request contains signed thinking, or the model's answer may contain it. A signature covers everything
    before it, so the beginning of the prompt must not change."""
    return contains_thinking(request) or asks_for_thinking(request)


def _pays(request: CompletionRequest, saved: int, backend: Backend) -> bool:
    """Whether leaving out `saved` tokens of tool definitions costs less than it saves.

    The tokens need not be written to the provider's cache now, nor read from it later. But if the definitions must be
    sent again, the whole prompt is written to the cache once more.
    """
    requests = sum(turn.role == "assistant" for turn in request.turns)
    if requests < LEAST_REQUESTS or saved < _LEAST_TOKENS:
        return False
    rules = rules_of(backend.model)
    gain = saved * (rules.write + rules.read * min(requests, _MOST_REMAINING))
    return gain > _COMES_BACK * (rules.write - rules.read) * measure.estimated(request)


def cached_s(request: CompletionRequest, tenant: Tenant, backend: Backend, plan: ContextPlan) -> float:
    """Maximum seconds for which the provider keeps the prompt, or a part of it, after this request."""
    marks = plan.marks
    if b"24h" in plan.cache_fields or b'"24h"' in request.raw:
        return _DAY_S
    long = marks is not None and "1h" in (marks.newest, *(lifetime for _, lifetime in marks.earlier))
    if long or b'"1h"' in request.raw:
        return LONG_S
    rules = rules_of(backend.model)
    return max(rules.ttl_s, 2 * SHORT_S if tenant.policy.context.keep_alive or rules.kind == "common" else 0.0)


def _named(request: CompletionRequest, turns: Iterable[Turn], names: Iterable[str]) -> set[str]:
    """Return each of `names` that occurs as a whole word in a text or a call of `turns`."""
    texts = [text for turn in turns for text in (turn.text, measure.calls(request, turn)) if text]
    return {name for name in names if any(name in text and _word(name).search(text) for text in texts)}


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")


def _loaded(stored: bytes) -> _Decided | None:
    try:
        tools, state, names = orjson.loads(stored)
        return _Decided(tools, state, frozenset(names))
    except (ValueError, TypeError):  # another version wrote it
        return None


def _digest(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _digest_of(tools: Any) -> str:
    return blake2b(orjson.dumps(tools), digest_size=8).hexdigest()
