"""The size of a session's next request follows from the size that the backend reported last."""

from __future__ import annotations

import pytest

from gateway.context.count import Counter
from gateway.context.growth import SessionGrowth
from gateway.context.measure import estimated, estimated_turn
from gateway.context.plan import Contexts
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Prefix, Route
from tests.context.conftest import backend_of, request_of, tenant_of, turn

WORDS = "the parcel leaves Leeds at noon and nobody signs for it "
CLAUDE = backend_of(model="claude-opus-4-6")


def session(exchanges: int, first: str = "Be brief.") -> CompletionRequest:
    more = [turn(role, WORDS * 20) for _ in range(exchanges) for role in ("assistant", "user")]
    return request_of([turn("system", first), turn("user", "Where is the parcel?"), *more])


def prefix_of(request: CompletionRequest, name: bytes = b"s") -> Prefix:
    return Prefix(name, tuple(len(each.text) for each in request.turns), turns=len(request.turns))


def predict(sizes: SessionGrowth, request: CompletionRequest, name: bytes = b"s", trimmed: int = 0) -> int:
    tokens = estimated(request)
    return sizes.predict(request, prefix_of(request, name), CLAUDE, ContextPlan(tokens, tokens - trimmed))


def answered(
    request: CompletionRequest, usage: Usage, sent: int, trimmed: int = 0, backend: Backend = CLAUDE
) -> Record:
    record = Record("req_1", tenant_of(), "auto", "openai_chat", stream=False)
    record.route = Route((backend,), "", prefix=prefix_of(request))
    attempt = record.attempt(backend)
    attempt.outcome, attempt.usage = "ok", usage
    attempt.input_tokens, attempt.trimmed_tokens = sent, trimmed
    return record


def added(request: CompletionRequest, since: int) -> int:
    return sum(estimated_turn(request, each) for each in request.turns[since:])


def test_only_what_was_added_is_multiplied_by_the_familys_factor() -> None:
    sizes = SessionGrowth()
    sizes.learn(answered(session(4), Usage(9_000), 1_000))
    assert predict(sizes, session(5)) == pytest.approx(9_000 + 1.2 * added(session(5), 10), abs=1)


def test_a_session_learns_how_many_tokens_its_own_texts_have() -> None:
    """The texts of this session have 1.5 tokens where 1 is estimated."""
    sizes, reported = SessionGrowth(), 5_000
    sizes.learn(answered(session(1), Usage(reported), 1_000))
    for exchanges in range(2, 80):
        now = session(exchanges)
        sent, more = predict(sizes, now), 1.5 * added(now, len(now.turns) - 2)
        reported += round(more)
        sizes.learn(answered(now, Usage(0, cached_tokens=reported), sent))
    assert predict(sizes, session(80)) == pytest.approx(reported + 1.5 * added(session(80), 160), abs=0.05 * more)


def test_a_cut_of_the_gateway_is_subtracted_once() -> None:
    sizes = SessionGrowth()
    sizes.learn(answered(session(20), Usage(9_000), 9_000))
    whole, cut = predict(sizes, session(21)), predict(sizes, session(21), trimmed=700)
    assert cut == whole - 700
    sizes.learn(answered(session(21), Usage(cut), cut, trimmed=700))
    again = predict(sizes, session(22), trimmed=700)
    assert again == pytest.approx(cut + 1.2 * added(session(22), 44), abs=5)


def test_a_history_that_the_client_rewrote_is_estimated_with_the_sessions_ratio() -> None:
    sizes, rewritten = SessionGrowth(), session(3, "Another beginning.")
    sizes.learn(answered(session(20), Usage(90_000), 90_000))
    assert predict(sizes, rewritten) == pytest.approx(1.2 * estimated(rewritten), abs=1)


@pytest.mark.parametrize("why", ["another session", "estimated", "failed", "another backend"])
def test_nothing_is_predicted_without_a_reported_size(why: str) -> None:
    sizes = SessionGrowth()
    backend = CLAUDE.model_copy(update={"name": "other"}) if why == "another backend" else CLAUDE
    record = answered(session(4), Usage(9_000, estimated=why == "estimated"), 1_000, backend=backend)
    record.attempts[0].outcome = "failed" if why == "failed" else "ok"
    sizes.learn(record)
    assert predict(sizes, session(5), b"t" if why == "another session" else b"s") == 0


def test_only_so_many_sessions_are_remembered_by_growth() -> None:
    sizes = SessionGrowth(most=1)
    for name in (b"s", b"t"):
        record = answered(session(4), Usage(9_000), 1_000)
        assert record.route is not None
        record.route.prefix = prefix_of(session(4), name)
        sizes.learn(record)
    assert [predict(sizes, session(5), name) > 0 for name in (b"s", b"t")] == [False, True]


async def test_the_ledger_gets_the_predicted_size_if_the_backend_reports_none(counter: Counter) -> None:
    contexts = Contexts(counter)
    contexts.learn(answered(session(4), Usage(9_000), 1_000))
    plan = await contexts.plan_for(session(5), tenant_of(), CLAUDE, prefix_of(session(5)))
    assert plan.expected_tokens > 9_000 > plan.tokens_after
