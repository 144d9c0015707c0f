"""Remembers facts about the history of each session, and decides with them which parts are left out of a request
(the cut).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from gateway.context import measure
from gateway.context.count import family_factor
from gateway.context.cuts import recall
from gateway.context.cuts.session import AGE, NO_CUT, Cut, SessionCuts, Shape, Weighed, first_request, shapes_of
from gateway.domain.backend import Backend
from gateway.domain.holdout import is_held_out
from gateway.domain.prompt_cache import rules_of
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Prefix
from gateway.domain.tenant import Tenant
from gateway.runtime.off_loop import OffLoop

MOST_SESSIONS = 256
"""Maximum number of sessions whose history is kept. A history has up to a megabyte. When the number is exceeded, the
history that was not used for the longest time is dropped. If its session continues, the history is read again."""
LEAST_TURNS = 2 * AGE
"""Minimum number of turns of a conversation. In a shorter conversation, no output is old enough to be left out."""
_ON_LOOP_CHARACTERS = 32_000
"""Maximum number of new characters that are read on the event loop. This is about 8,000 tokens and takes a millisecond.
"""
_SIGNED = {"openai_chat": (b'"thinking_blocks"',), "openai_responses": (b'"encrypted_content"',)}
"""Dialect → names of fields with signed thinking. In these dialects the thinking cannot be left out, so nothing before
it may change."""
_Key = tuple[bytes, str, tuple[Shape, ...], int]
"""(Digest of the session, backend, beginning of the conversation, tokens of the tools). Cuts depend on the tokens of
the tools too. So a client that changes its tools gets the same cuts from every worker."""


class Cutting:
    """Decides for all sessions which old tool outputs are left out of a request (the cut). The object belongs to one
    event loop."""

    def __init__(
        self,
        off_loop: OffLoop,
        most: int = MOST_SESSIONS,
        switched_off: Callable[[str], bool] = lambda team: False,
        weighs_all: bool = False,
    ) -> None:
        """`switched_off`: whether cuts are switched off for a team, because they did not save money. `weighs_all`:
        whether `weighed` is exact even for a cut that is too expensive, which takes longer."""
        self._weighs_all = weighs_all
        self._off_loop, self._most, self._switched_off = off_loop, most, switched_off
        self._known: OrderedDict[_Key, SessionCuts] = OrderedDict()
        self._counts = {"cut_requests": 0, "cut_tokens": 0}

    def stats(self) -> dict[str, int]:
        return {"cut_sessions": len(self._known), **self._counts}

    def weighed(self) -> Weighed | None:
        """The last decision about a cut, for the session that was planned last. None if that session was too short for
        a decision."""
        session = next(reversed(self._known.values()), None)
        return session.weighed if session is not None else None

    async def cut(self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None) -> Cut:
        """The cut for a request to `backend`: the parts of the request that are left out."""
        if prefix is None or not _may(request, tenant, backend) or self._switched_off(tenant.team):
            return NO_CUT
        if len(request.turns) <= LEAST_TURNS:
            return Cut(anchor=first_request(request.turns))
        shapes = shapes_of(request.turns)
        fixed = measure.fixed_tokens(request)
        key = prefix.session, backend.name, tuple(shapes[:3]), fixed
        session = self._known.pop(key, None)  # while the history is not in `_known`, no other request uses it
        if session is None or not session.follows(shapes):
            session = SessionCuts(rules_of(backend.model), family_factor(backend.model), self._weighs_all)
        newest = request.turns[-1]
        asks = newest.role == "user" and _may_search(newest.text)
        if asks or sum([length for length, *_ in shapes[session.turns :]]) > _ON_LOOP_CHARACTERS:
            cut = await self._off_loop.run(session.cut, request, shapes, fixed)
        else:
            cut = session.cut(request, shapes, fixed)
        self._known[key] = session
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        self._counts["cut_requests"] += bool(cut.texts)
        self._counts["cut_tokens"] += cut.tokens
        return cut


def _may_search(text: str) -> bool:
    """Whether a user's text may contain a question about outputs that were left out. Such a question starts a search in
    these outputs.

    A long text is not examined, because that would delay the event loop. The result is then True.
    """
    return len(text) > _ON_LOOP_CHARACTERS or bool(recall.questions_in(text))


def _may(request: CompletionRequest, tenant: Tenant, backend: Backend) -> bool:
    """Whether the policy of the team and the dialect of the request allow cuts."""
    policy = tenant.policy.context
    if policy.old_outputs == "keep" or request.controls.untouched or not request.one_context or not backend.hosted:
        return False
    if is_held_out(tenant.team, request.controls.session or request.agent_session, policy.holdout):
        return False
    if request.dialect == "anthropic_messages":
        return True
    return request.dialect in _SIGNED and not any(name in request.raw for name in _SIGNED[request.dialect])
