"""Decides which part of a session's prompt gets a mark for Anthropic's prompt cache, and which lifetime the mark gets.

Prices are relative to plain input. Reading from the cache costs 0.1, writing for five minutes 1.25, and writing for an
hour 2. Tokens that are read need not be written again. Therefore a mark with a lifetime of an hour costs 2 only for the
tokens between the end of the last request and the mark. It then keeps the whole prompt up to the mark for an hour. Such
a mark is cheapest at the first block after the last request, which is the beginning of the model's answer. So it is set
there.

The newest block gets a mark of five minutes. A mark of an hour is added if its additional cost is lower than the
expected loss without it. This loss is the cost of a pause of more than five minutes, times the probability of such a
pause. The first requests of a session get no such mark, because most sessions without a pause are short. A team whose
sessions had no such pause so far gets none either, so it never pays for what it does not need.

Each worker has its own memory. If another worker served a session before, the session begins without history in this
worker. This only reduces the savings.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from gateway.context.measure import declared, estimated_turn
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import LONG_S, SHORT_S, CacheMarks, Lifetime, rules_of
from gateway.domain.record import Attempt
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Prefix
from gateway.domain.tenant import Tenant

_TOOLS = -2
"""Stands for tool definitions among the indexes of the turns that were dropped or changed."""
_MOST_ENDS = 100
"""Maximum number of request ends that are remembered for each session. Marks can be set at these positions."""
MOST_SESSIONS = 4096
"""Maximum number of sessions that are remembered, with about 500 bytes each. When the number is exceeded, the session
that was not used for the longest time is forgotten."""
_READ, _WRITE_SHORT, _WRITE_LONG = 0.1, 1.25, 2.0
"""Prices per token relative to plain input."""
_RETURNS_PAY = (_WRITE_SHORT - 1) / (_WRITE_SHORT - _READ)
"""Minimum probability of another request within five minutes. If the probability is lower, marking the first request
costs more than the mark saves."""
_PAUSES, _PAUSES_WEIGHT = 0.02, 500
"""`_PAUSES` is assumed, before any observation, as the share of a coding agent's requests that come more than five
minutes, but at most an hour, after the request before. In 25 recorded sessions, the share was 3 %; the cost there was
lowest with marks chosen for 2 %. `_PAUSES_WEIGHT` is the number of observations that the assumption counts as."""
_MOST_INSURED = 0.006
"""Maximum cost of marks with a lifetime of an hour, as a share of the cost of the session's input. The maximum applies
until such a mark has kept the cache during a pause of more than five minutes."""
_UNINSURED = 9
"""Number of requests at the beginning of a session that get no mark with a lifetime of an hour, unless a request came
more than `_STEADY_S` seconds after the request before. So a short session without gaps never pays for such marks. In 37
recorded sessions, a pause of five minutes to an hour followed 0.8 % of the requests before the first such gap, and
2.9 % of the others."""
_STEADY_S = 120.0
_RETURNS_AGENT, _RETURNS_ALONE, _RETURNS_WEIGHT = 0.9, 0.1, 10
"""Assumed before any observation: the share of sessions whose second request comes within five minutes.
`_RETURNS_AGENT` is used if the first request offers tools, `_RETURNS_ALONE` if it does not. `_RETURNS_WEIGHT` is the
number of observations that each assumption counts as."""


class _End(NamedTuple):
    """The end of one request of a session, as a position in the session's prompt."""

    blocks: int
    until: float
    """The time until which the provider surely caches the prompt up to here, in monotonic seconds; 0 if never."""


@dataclass(slots=True)
class _Warm:
    """The part of one session's prompt that is in the provider's cache."""

    lengths: tuple[int, ...]
    at: float
    """Time of the session's latest request, in monotonic seconds."""
    blocks: int
    """Number of blocks up to the last cache mark; 0 if nothing is cached."""
    tokens: int
    renewed: float = 0.0
    """Time at which the gateway itself read the prompt from the cache, in monotonic seconds. 0: never."""
    long_blocks: int = 0
    """Number of blocks that are cached for an hour."""
    long_tokens: int = 0
    requests: int = 1
    longest_s: float = 0.0
    """The longest time between two requests of the session so far, in seconds."""
    agent: bool = False
    """Whether the session's first request offered tools."""
    spent: float = 0.0
    """Cost of the session's input so far, in tokens of plain input."""
    insured: float = 0.0
    """Additional cost of marks with a lifetime of an hour, in tokens of plain input. Counted since such a mark last
    kept the cache during a pause of more than five minutes."""
    messages: int = 0
    """Number of messages in the session's latest request."""
    cut: frozenset[int] = frozenset()
    """Indexes of the turns that were dropped or changed."""
    ends: dict[int, _End] = field(default_factory=dict)
    """The ends of the session's requests, by their number of messages."""


class _Share:
    """The share of cases in which an event happens. Before any observation, an assumed share is used, which counts
    as `weight` observations.
    """

    __slots__ = ("_assumed", "seen", "yes")

    def __init__(self, prior: float, weight: int) -> None:
        self.yes, self.seen = prior * weight, float(weight)
        self._assumed = self.yes

    @property
    def observed(self) -> bool:
        """Whether the event happened at least once."""
        return self.yes > self._assumed

    @property
    def value(self) -> float:
        return self.yes / self.seen


class CacheMarking:
    """Chooses the cache marks of a context plan. The object has no locks, because it belongs to one event loop."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, most: int = MOST_SESSIONS) -> None:
        self._monotonic, self._most = monotonic, most
        self._warm: OrderedDict[Hashable, _Warm] = OrderedDict()
        self._fixed: OrderedDict[Hashable, float] = OrderedDict()
        """Digest of the tools and the system prompt → monotonic time in seconds at which both were last sent."""
        self._pauses: dict[str, _Share] = {}
        self._returns: dict[tuple[str, bool], _Share] = {}
        self._counts = {"marked": 0, "marked_1h": 0}

    def stats(self) -> dict[str, int]:
        return {"cache_sessions": len(self._warm), **{f"cache_{name}": count for name, count in self._counts.items()}}

    def plan(
        self,
        request: CompletionRequest,
        tenant: Tenant,
        backend: Backend,
        prefix: Prefix | None,
        plan: ContextPlan,
    ) -> CacheMarks | None:
        """The cache marks for a request to `backend`, which caches only marked prompts. None: send the client's own
        marks unchanged.

        `plan`: the other changes to the request.
        """
        mode = tenant.policy.context.prompt_cache
        if mode == "client" or request.controls.untouched:
            return None
        if mode == "off":
            return CacheMarks(remove=True) if request.asks_for_cache else None
        if prefix is None or not backend.takes_marks or plan.tokens_after < rules_of(backend.model).least_tokens:
            return None
        now, cut = self._monotonic(), plan.drop.union(plan.replace, plan.no_thinking)
        if plan.instead is not None:
            cut |= {_TOOLS}
        warm = self._warm.get((prefix.session, backend.name))
        if warm is None or prefix.lengths[: len(warm.lengths)] != warm.lengths:
            marks = self._first(request, tenant, backend)
        elif not warm.blocks:
            marks = CacheMarks("5m", fixed=True)
        elif changed := [place for place in warm.cut ^ cut if place < warm.messages]:
            marks = CacheMarks("5m", _around(warm, min(changed), plan.anchor, now), fixed=True)
        else:
            marks = self._next(warm, tenant, now, request)
            marks.earlier += _before_next_cut(warm, plan.anchor, marks, now)
        marks.at, marks.agent, marks.cut = now, "tools" in request.needs, cut
        marks.anchor, marks.messages = plan.anchor, request.turns[-1].index + 1
        return marks

    def _first(self, request: CompletionRequest, tenant: Tenant, backend: Backend) -> CacheMarks:
        """The marks for the first request of a session. The whole prompt is marked if the session will probably
        continue.

        If it will probably not continue, at most the tools and the system prompt are marked. This is done only if
        another session sent the same tools and system prompt within five minutes.
        """
        if self._share_of_returns(tenant.team, "tools" in request.needs).value > _RETURNS_PAY:
            return CacheMarks("5m", fixed=True)
        return CacheMarks(fixed=self._seen_lately(request, tenant, backend))

    def _next(self, warm: _Warm, tenant: Tenant, now: float, request: CompletionRequest) -> CacheMarks:
        """The marks for a request that continues a session."""
        pause_s = now - max(warm.at, warm.renewed)
        if pause_s > LONG_S or (pause_s > SHORT_S and not warm.long_blocks):
            return CacheMarks("5m", fixed=True)
        if pause_s > SHORT_S:
            return CacheMarks("5m", ((warm.long_blocks, "1h"), (warm.long_blocks, "5m")), fixed=True)
        if self._insures(warm, tenant.team, request, pause_s):
            return CacheMarks("5m", ((warm.blocks + 1, "1h"),), fixed=True)
        if not warm.long_blocks:
            return CacheMarks("5m", ((warm.blocks, "5m"),), fixed=True)
        return CacheMarks("5m", ((warm.long_blocks, "1h"), (warm.blocks, "5m")), fixed=True)

    def _insures(self, warm: _Warm, team: str, request: CompletionRequest, pause_s: float) -> bool:
        """Whether a mark with a lifetime of an hour is set at the first block after the last request.

        The mark's cost is overestimated: it is computed for the whole first message, and the first block is only a part
        of it.
        """
        steady = max(pause_s, warm.longest_s) <= _STEADY_S
        if steady and max(warm.requests, _answers(request)) < _UNINSURED:
            return False
        added = 0
        for turn in reversed(request.turns):
            if turn.index < warm.messages:
                break
            if turn.index == warm.messages:
                added += estimated_turn(request, turn)
        costs = (_WRITE_LONG - _WRITE_SHORT) * added
        saves = (_WRITE_SHORT - _READ) * max(0, warm.tokens - warm.long_tokens)
        affordable = warm.insured + costs <= _MOST_INSURED * warm.spent
        pauses = self._share_of_pauses(team)
        return affordable and pauses.observed and costs < pauses.value * saves

    def _seen_lately(self, request: CompletionRequest, tenant: Tenant, backend: Backend) -> bool:
        """Whether another session of this API key sent equal tools and an equal system prompt to `backend` within five
        minutes."""
        fixed = blake2b(declared(request).encode(), digest_size=16)
        for turn in request.turns:
            if turn.role == "system":
                fixed.update(b"\0" + turn.text.encode("utf-8", "surrogatepass"))
        key, now = (tenant.key.lineage, backend.name, fixed.digest()), self._monotonic()
        before = self._fixed.pop(key, None)
        self._fixed[key] = now
        if len(self._fixed) > self._most:
            self._fixed.popitem(last=False)
        return before is not None and now - before < SHORT_S

    def learn(self, attempt: Attempt, team: str, prefix: Prefix) -> None:
        """Store which part of an answered request is now in the provider's cache."""
        marks, usage = attempt.marks, attempt.usage
        if marks is None or marks.remove or usage is None:
            return
        key = prefix.session, attempt.backend.name
        before = self._warm.pop(key, None)
        self._see_gap(before, marks, team)
        kept = usage.cached_tokens + usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
        now = _Warm(prefix.lengths, marks.at, marks.blocks if marks.newest and kept else 0, usage.all_input)
        now.agent, now.cut = marks.agent if before is None else before.agent, marks.cut
        now.messages = marks.messages
        _note_cost(now, before, usage)
        now.requests = 1 if before is None else before.requests + 1
        now.longest_s = 0.0 if before is None else max(before.longest_s, marks.at - before.at)
        if marks.lives_long and now.blocks:
            now.long_blocks, now.long_tokens = now.blocks, now.tokens
        elif before is not None and marks.earlier and marks.earlier[0][1] == "1h":
            now.long_blocks, now.long_tokens = before.long_blocks, before.long_tokens
            if usage.cache_write_1h_tokens:
                now.long_blocks = marks.earlier[0][0]
                now.long_tokens = usage.cached_tokens + usage.cache_write_1h_tokens
        if marks.anchor:
            now.ends = _ends(before, marks, any_read=usage.cached_tokens > 0)
        self._counts["marked"] += now.blocks > 0
        self._counts["marked_1h"] += usage.cache_write_1h_tokens > 0
        self._warm[key] = now
        if len(self._warm) > self._most:
            self._warm.popitem(last=False)

    def cached(self, session: bytes, backend: str) -> tuple[int, int]:
        """Return two numbers of tokens: the length of the session's prompt, and the length of the part that `backend`
        keeps for an hour. (0, 0) if no mark of the whole prompt is known."""
        warm = self._warm.get((session, backend))
        return (warm.tokens, warm.long_tokens) if warm is not None and warm.blocks else (0, 0)

    def renew(self, session: bytes, backend: str) -> None:
        """Record that the session's prompt was just read from the cache of `backend`, which renews its lifetime."""
        if (warm := self._warm.get((session, backend))) is not None:
            warm.renewed = self._monotonic()

    def _see_gap(self, before: _Warm | None, marks: CacheMarks, team: str) -> None:
        """Count the pause between the session's last request and this one. `before`: the state of the session after
        its last request.

        If `before` is None, the session is new, and its start is counted instead.
        """
        if before is None:
            self._share_of_returns(team, marks.agent).seen += 1
            return
        gap_s, pauses = marks.at - before.at, self._share_of_pauses(team)
        if before.requests == 1:
            self._share_of_returns(team, before.agent).yes += gap_s <= SHORT_S
        pauses.seen += 1
        pauses.yes += SHORT_S < gap_s <= LONG_S

    def _share_of_pauses(self, team: str) -> _Share:
        found = self._pauses.get(team)
        return found or self._pauses.setdefault(team, _Share(_PAUSES, _PAUSES_WEIGHT))

    def _share_of_returns(self, team: str, agent: bool) -> _Share:
        found = self._returns.get((team, agent))
        prior = _RETURNS_AGENT if agent else _RETURNS_ALONE
        return found or self._returns.setdefault((team, agent), _Share(prior, _RETURNS_WEIGHT))


def _answers(request: CompletionRequest) -> int:
    """Number of the model's answers in the history of a request."""
    return sum([turn.role == "assistant" for turn in request.turns])


def _around(warm: _Warm, changed: int, anchor: int, now: float) -> tuple[tuple[int, Lifetime], ...]:
    """At most two cache marks for a request with a new cut.

    One mark is at the last position before the cut that the provider's cache has kept. The other is at the position
    where the next cut will begin. `changed`: the message at which the cut begins. `anchor`: the message at which the
    next cut will begin.
    """
    places = [at] if (at := _cached_end(warm.ends, changed, now)) else []
    if anchor in warm.ends:
        places.append(anchor)
    return tuple((warm.ends[at].blocks, "5m") for at in dict.fromkeys(places))


def _before_next_cut(warm: _Warm, anchor: int, marks: CacheMarks, now: float) -> tuple[tuple[int, Lifetime], ...]:
    """A cache mark where the next cut begins; empty if there is no such position. The mark makes the provider cache the
    prompt up to this position, so that the request with the next cut can read it. If the provider reads this
    position from its cache now, a new mark there has no effect. Then the mark is at the last cached position before it.

    `anchor`: the message at which the next cut begins.
    """
    end = warm.ends.get(anchor)
    at = anchor if end and end.blocks > _read_blocks(warm, now) else _cached_end(warm.ends, anchor, now)
    return ((warm.ends[at].blocks, marks.earlier[-1][1] if marks.earlier else "5m"),) if at else ()


def _read_blocks(warm: _Warm, now: float) -> int:
    """The number of blocks that a request reads from the cache if no further outputs are left out of it."""
    pause_s = now - max(warm.at, warm.renewed)
    return warm.blocks if pause_s <= SHORT_S else warm.long_blocks if pause_s <= LONG_S else 0


def _cached_end(ends: dict[int, _End], messages: int, now: float) -> int:
    """The position in `ends` up to which the prompt is cached. Only positions after at most `messages` messages count.
    The result is the last of them that is surely cached. If none is surely cached, it is the first of them; 0 if there
    are none."""
    before = [each for each in ends if each <= messages]
    return max([each for each in before if ends[each].until >= now], default=min(before, default=0))


def _note_cost(now: _Warm, before: _Warm | None, usage: Usage) -> None:
    if before is not None:
        bridged = now.at - before.at > SHORT_S and usage.cached_tokens
        now.spent, now.insured = before.spent, 0.0 if bridged else before.insured
    written = usage.cache_write_5m_tokens, usage.cache_write_1h_tokens
    now.insured += (_WRITE_LONG - _WRITE_SHORT) * written[1]
    now.spent += usage.input_tokens + _READ * usage.cached_tokens + _WRITE_SHORT * written[0] + _WRITE_LONG * written[1]


def _ends(before: _Warm | None, marks: CacheMarks, *, any_read: bool) -> dict[int, _End]:
    """The ends of a session's requests after a request with `marks`. `any_read`: whether the request read anything from
    the cache.

    A mark inside the part that was read renews the cache up to the mark. A mark after this part caches the prompt up to
    the mark. Old ends that no later mark can use are removed.
    """
    lifetimes = {blocks: LONG_S if lifetime == "1h" else SHORT_S for blocks, lifetime in marks.earlier}
    changed = marks.messages if before is None else min(before.cut ^ marks.cut, default=marks.messages)
    read = 0 if before is None or not any_read else _read_blocks(before, marks.at)
    ends = dict[int, _End]()
    for messages, (blocks, until) in () if before is None else before.ends.items():
        if blocks > read or messages > changed:
            until = marks.at + lifetimes[blocks] if blocks in lifetimes else 0.0
        elif blocks in lifetimes and until >= marks.at:
            until = max(until, marks.at + SHORT_S)
        if messages < marks.messages:
            ends[messages] = _End(blocks, until)
    first = _cached_end(ends, marks.anchor, marks.at) or marks.anchor
    ends = {messages: end for messages, end in ends.items() if messages >= first}
    ends[marks.messages] = _End(marks.blocks, marks.at + (LONG_S if marks.lives_long else SHORT_S))
    if len(ends) > _MOST_ENDS:
        del ends[next(each for each in ends if each not in (first, marks.anchor))]
    return ends
