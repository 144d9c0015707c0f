"""Keeps what was read of each session's history, and returns the cut of a request."""

from __future__ import annotations

from collections import OrderedDict

from gateway.context import measure
from gateway.context.count import family_factor
from gateway.context.cuts.session import AGE, NO_CUT, Cut, SessionCuts, Weighed, first_request
from gateway.domain.backend import Backend
from gateway.domain.prompt_cache import rules_of
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Prefix
from gateway.domain.tenant import Tenant
from gateway.runtime.off_loop import OffLoop

MOST_SESSIONS = 256
"""Maximum number of histories, of up to a megabyte each. When full, the least recently used is evicted; if its session
goes on, its history is read again."""
_LEAST_TURNS = 2 * AGE
"""No output of a shorter conversation is old enough."""
_ON_LOOP_CHARACTERS = 32_000
"""Most new characters that are read on the event loop: about 8,000 tokens, a millisecond."""
_SIGNED = {"openai_chat": (b'"thinking_blocks"',), "openai_responses": (b'"encrypted_content"',)}
"""Fields with signed thinking. In these dialects it cannot be left out, so nothing before it may change."""
_Key = tuple[bytes, str, tuple[int, ...]]


class Cutting:
    """Belongs to one event loop."""

    def __init__(self, off_loop: OffLoop, most: int = MOST_SESSIONS) -> None:
        self._off_loop, self._most = off_loop, most
        self._known: OrderedDict[_Key, SessionCuts] = OrderedDict()
        self._counts = {"cut_requests": 0, "cut_tokens": 0}

    def stats(self) -> dict[str, int]:
        return {"cut_sessions": len(self._known), **self._counts}

    def weighed(self) -> Weighed | None:
        """The last decision of the session that was planned last; None if no session was long enough."""
        session = next(reversed(self._known.values()), None)
        return session.weighed if session is not None else None

    async def cut(self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None) -> Cut:
        """What is left out of a request to `backend`."""
        if prefix is None or not _may(request, tenant, backend):
            return NO_CUT
        if len(request.turns) <= _LEAST_TURNS:
            return Cut(anchor=first_request(request.turns))
        lengths = [len(turn.text) for turn in request.turns]
        key = prefix.session, backend.name, tuple(lengths[:3])
        session = self._known.pop(key, None)  # no other request works on it now
        if session is None or not session.follows(lengths):
            session = SessionCuts(rules_of(backend.model), family_factor(backend.model))
        fixed = measure.fixed_tokens(request)
        if sum(lengths[session.turns :]) > _ON_LOOP_CHARACTERS:
            cut = await self._off_loop.run(session.cut, request, lengths, fixed)
        else:
            cut = session.cut(request, lengths, fixed)
        self._known[key] = session
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        self._counts["cut_requests"] += bool(cut.texts)
        self._counts["cut_tokens"] += cut.tokens
        return cut


def _may(request: CompletionRequest, tenant: Tenant, backend: Backend) -> bool:
    """Whether the team and the dialect allow cuts."""
    policy = tenant.policy.context
    if policy.old_outputs == "keep" or request.controls.untouched or not request.one_context or not backend.hosted:
        return False
    if request.dialect == "anthropic_messages":
        return True
    return request.dialect in _SIGNED and not any(name in request.raw for name in _SIGNED[request.dialect])
