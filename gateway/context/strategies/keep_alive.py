"""Decides whether a session's prompt is kept in Anthropic's cache during a pause.

To keep the prompt, the gateway sends the last request again shortly before the cache expires. The answer to this call
has at most one token. The call costs a read of the whole prompt. If the client continues within the next five minutes,
the prompt need not be written again. So the call pays if the probability of such a continuation, times the saving,
exceeds the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.dialects import json_splice
from gateway.dialects.clients import DIALECTS
from gateway.domain.holdout import is_held_out
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import SHORT_S
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Prefix
from gateway.domain.tenant import Tenant

IDLE_S = SHORT_S - 20.0
"""Seconds after a session's last request at which its prompt is kept. The call must arrive before the cache forgets the
prompt."""
RETURNS_AGENT, RETURNS_ALONE, RETURNS_WEIGHT = 0.45, 0.05, 40
"""Assumed before any observation: the share of idle sessions that continue within the next five minutes.
`RETURNS_AGENT` is used for requests with tools; in recorded sessions of coding agents, the share was 45 %.
`RETURNS_WEIGHT` is the number of observations that the assumption counts as."""
_DIALECTS = frozenset({"anthropic_messages", "openai_chat"})
_THINKS = b'"reasoning_effort"'
_OF_ANSWER = frozenset({"stream", "stream_options", "max_tokens", "max_completion_tokens"})
"""Fields about the answer, which are not part of the prompt."""


@dataclass(frozen=True, slots=True)
class Cached:
    """The part of a session's prompt that the provider's cache has after an answer."""

    tokens: int
    long_tokens: int
    """Number of tokens that stay for an hour anyway."""
    renew: Callable[[], None] = lambda: None
    """Function that is called when the gateway has read the prompt from the cache."""


class KeepAlive(Protocol):
    """Sends the calls that keep prompts in the cache. Both methods are called only for teams whose policy has
    `context.keep_alive`."""

    def asked(self, request: CompletionRequest, tenant: Tenant, prefix: Prefix, plan: ContextPlan) -> None:
        """Note that a request of the session is about to be sent. This cancels a waiting call of the session."""
        ...

    def ended(self, record: Record, attempt: Attempt | None, cached: Cached) -> None:
        """Note that the request has ended. If it was answered, a call is planned in case the session becomes idle.

        `attempt`: the attempt that gave the answer; None if no backend was called.
        """
        ...


class NoKeepAlive:
    """Implements `KeepAlive` for a gateway that keeps no prompts in caches."""

    def asked(self, request: CompletionRequest, tenant: Tenant, prefix: Prefix, plan: ContextPlan) -> None:
        pass

    def ended(self, record: Record, attempt: Attempt | None, cached: Cached) -> None:
        pass


NO_KEEP_ALIVE = NoKeepAlive()


def may_keep(request: CompletionRequest, tenant: Tenant, plan: ContextPlan) -> bool:
    """Whether the prompt of `request` may be kept in the cache.

    Requests that set a thinking budget are excluded. The call that keeps the prompt has a very low output limit, so it
    would need a lower thinking budget. A request with another thinking budget does not find the conversation in the
    cache.
    """
    if plan.marks is None or plan.marks.newest != "5m" or request.controls.untouched or not request.one_context:
        return False
    if request.dialect not in _DIALECTS or "reasoning" in request.needs or _THINKS in request.raw:
        return False
    session = request.controls.session or request.agent_session
    return not is_held_out(tenant.team, session, tenant.policy.context.holdout)


def cost_and_gain(price: Price, cached: Cached, share: float) -> tuple[int, int]:
    """(Cost of the call, expected saving) in pico-dollars. `share`: probability that the client continues in time."""
    at_risk = max(0, cached.tokens - cached.long_tokens)
    cost = price.cost(Usage(cached_tokens=cached.tokens, output_tokens=1))
    saved = price.cost(Usage(cache_write_5m_tokens=at_risk)) - price.cost(Usage(cached_tokens=at_risk))
    return cost, int(share * saved)


def share_of_returns(prior: float, seen: int, yes: int) -> float:
    """The expected share of idle sessions that continue. `yes` of `seen` idle sessions continued; `prior` is the
    share that was assumed before.
    """
    return (prior * RETURNS_WEIGHT + yes) / (RETURNS_WEIGHT + max(seen, yes))


def without_parsed(request: CompletionRequest) -> CompletionRequest:
    """The request with its bytes only. The parsed parts are removed, because they need several times as much memory as
    the bytes, and `smallest` does not need them."""
    return replace(
        request, body={}, turns=[], as_chat=None, attachments=None, vector=None, scan=None, continued=None, notes=None
    )


def smallest(request: CompletionRequest) -> CompletionRequest:
    """A request with the same prompt, whose answer has at most one token. All parts that the provider compares with its
    cache must be equal. So all other values of the request keep their bytes."""
    raw = b'{"max_tokens":1,' + json_splice.without(request.raw, _OF_ANSWER)[1:]
    controls = request.controls._replace(cache="bypass")
    found = DIALECTS[request.dialect].parse(raw, request.id, controls, request.headers)
    return replace(found, query=request.query, agent=request.agent, agent_session=request.agent_session)


def again(plan: ContextPlan) -> ContextPlan:
    """A copy of the plan for another call. Both calls must have the same bytes up to the last cache mark."""
    assert plan.marks is not None
    return replace(plan, marks=replace(plan.marks))
