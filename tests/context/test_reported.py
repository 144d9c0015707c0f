"""A session's size is what its backend reported last; only what was added since is scaled by a factor."""

from __future__ import annotations

import pytest

from gateway.context import measure
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.context.reported import ReportedSizes
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Prefix, Route
from tests.context.conftest import backend_of, request_of, tenant_of, turn

WORDS = "the parcel leaves Leeds at noon and nobody signs for it "


def session(exchanges: int) -> CompletionRequest:
    """One that asks for no certain length of its answer."""
    old = [turn(role, WORDS * 20) for _ in range(exchanges) for role in ("user", "assistant")]
    return request_of([turn("system", "Be brief."), *old, turn("user", "And now?")], max_output_tokens=100)


def prefix_of(request: CompletionRequest, session: bytes = b"s") -> Prefix:
    return Prefix(session, tuple(len(each.text) for each in request.turns[:-1]))


def answered(backend: Backend, prefix: Prefix | None, counted: int, usage: Usage | None) -> Record:
    record = Record("req_1", tenant_of(), "auto", "openai_chat", stream=False)
    attempt = Attempt("a", 1, backend, 0.0, outcome="ok", usage=usage, counted_tokens=counted)
    record.attempts.append(attempt)
    record.route = Route((backend,), "", prefix=prefix)
    return record


async def total(counter: Counter, request: CompletionRequest) -> int:
    return (await measure.sizes(request, counter, "o200k_base")).total


async def test_a_session_that_its_backend_found_small_is_not_trimmed(counter: Counter) -> None:
    """The family's factor says that it does not fit, and the backend said that it does."""
    contexts, before, now = Contexts(counter), session(20), session(21)
    size, more = await total(counter, before), await total(counter, now)
    backend = backend_of(int(more * 1.1) + 100, model="claude-opus-4-6")
    prefix = prefix_of(now)
    assert (await contexts.plan_for(now, tenant_of(), backend, prefix)).touched
    contexts.learn(answered(backend, prefix_of(before), size, Usage(size)))
    plan = await contexts.plan_for(now, tenant_of(), backend, prefix)
    assert not plan.touched
    assert plan.counted_tokens == more


async def test_a_session_that_its_backend_found_large_is_trimmed_below_the_window(counter: Counter) -> None:
    """Its texts take 1.5 tokens where one is counted: at the family's factor it would be refused."""
    contexts, before, now = Contexts(counter), session(20), session(21)
    size, more = await total(counter, before), await total(counter, now)
    backend = backend_of(int(more * 1.3) + 100, model="claude-opus-4-6")
    assert not (await contexts.plan_for(now, tenant_of(), backend, prefix_of(now))).touched
    contexts.learn(answered(backend, prefix_of(before), size, Usage(0, cached_tokens=int(size * 1.5))))
    plan = await contexts.plan_for(now, tenant_of(), backend, prefix_of(now))
    assert plan.touched
    assert plan.counted_tokens * 1.5 + 100 <= (backend.window_tokens or 0)


async def test_tokens_that_the_provider_adds_once_do_not_scale_what_the_session_adds(counter: Counter) -> None:
    contexts, before, now = Contexts(counter), session(2), session(4)
    size, more = await total(counter, before), await total(counter, now)
    backend = backend_of(size * 5 + int((more - size) * 1.9) + 100, model="claude-opus-4-6", location="local")
    contexts.learn(answered(backend, prefix_of(before), size, Usage(size * 5)))
    assert not (await contexts.plan_for(now, tenant_of(), backend, prefix_of(now))).touched


@pytest.mark.parametrize("why", ["another session", "another backend", "history rewritten", "no session", "estimated"])
async def test_a_report_holds_for_the_same_history_at_the_same_backend_only(counter: Counter, why: str) -> None:
    contexts, now = Contexts(counter), session(21)
    size = await total(counter, session(20))
    backend = backend_of(int(await total(counter, now) * 1.1) + 100, model="claude-opus-4-6")
    prefix: Prefix | None = prefix_of(session(20))
    served, later = backend, prefix_of(now)
    if why == "another session":
        later = prefix_of(now, b"t")
    elif why == "another backend":
        served = backend.model_copy(update={"name": "other"})
    elif why == "history rewritten":
        later = Prefix(b"s", (1, *later.lengths[1:]))
    elif why == "no session":
        prefix = None
    contexts.learn(answered(served, prefix, size, Usage(size, estimated=why == "estimated")))
    assert (await contexts.plan_for(now, tenant_of(), backend, later)).touched


def test_only_so_many_sessions_are_remembered() -> None:
    sizes, backend = ReportedSizes(most=2), backend_of()
    prefixes = [Prefix(bytes([number]), (1,)) for number in range(3)]
    for prefix in prefixes:
        sizes.learn(answered(backend, prefix, 10, Usage(12)))
    assert [sizes.last(prefix, backend) is not None for prefix in prefixes] == [False, True, True]
