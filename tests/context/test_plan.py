from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.context import measure
from gateway.context.count import Counter
from gateway.context.groups import groups, last_user
from gateway.context.plan import Contexts
from gateway.context.shorten import LEAST_TOKENS
from gateway.domain.request import CompletionRequest, Turn
from gateway.domain.routing.route import ContextPlan
from gateway.errors import ContextTooLong
from tests.context.conftest import backend_of, hosted_of, request_of, tenant_of, turn

WORDS = "the parcel leaves Leeds at noon and nobody signs for it "


@pytest.fixture
def contexts(counter: Counter) -> Contexts:
    return Contexts(counter)


def talk(exchanges: int, words: int = 10) -> list[Turn]:
    old = [turn(role, WORDS * words) for _ in range(exchanges) for role in ("user", "assistant")]
    return [turn("system", "Be brief."), *old, turn("user", "And now?")]


async def test_what_fits_goes_untouched_and_uncounted(contexts: Contexts) -> None:
    plan = await contexts.plan_for(request_of(talk(3)), tenant_of(100_000), backend_of(128_000))
    assert not plan.touched
    assert plan.tokens_before == plan.tokens_after > 0
    assert contexts.stats()["counted"] == 0


async def test_what_is_no_one_context_is_counted_but_fitted_nowhere(contexts: Contexts, counter: Counter) -> None:
    texts = [turn("user", WORDS * 10) for _ in range(50)]
    several = request_of(texts)
    several.one_context = False
    estimate = contexts.estimate(several)
    assert estimate.tokens == counter.estimate("\n".join(one.text for one in texts))
    assert estimate.least == 0
    plan = await contexts.plan_for(several, tenant_of(100), backend_of(200))
    assert (plan.touched, plan.tokens_after) == (False, estimate.tokens)


async def test_too_long_a_prompt_is_named_as_its_dialect_does(contexts: Contexts) -> None:
    asked = request_of([turn("user", WORDS * 100)])
    asked.dialect = "openai_completions"
    with pytest.raises(ContextTooLong, match="Shorten prompt") as caught:
        await contexts.plan_for(asked, tenant_of(), backend_of(200))
    assert caught.value.param == "prompt"


async def test_near_the_limit_tokens_are_counted_exactly(contexts: Contexts, counter: Counter) -> None:
    request = request_of(talk(3))
    exact = (await measure.sizes(request, counter, "o200k_base")).total
    plan = await contexts.plan_for(request, tenant_of(exact), backend_of())
    assert (plan.touched, plan.tokens_after) == (False, exact)
    trimmed = await contexts.plan_for(request, tenant_of(exact - 1), backend_of())
    assert trimmed.drop == {1, 2}


async def test_the_oldest_exchanges_are_dropped_first(contexts: Contexts) -> None:
    plan = await contexts.plan_for(request_of(talk(10)), tenant_of(800), backend_of())
    assert plan.drop == set(range(1, 1 + len(plan.drop)))
    assert 0 < plan.tokens_after <= 800 < plan.tokens_before
    assert not plan.replace


async def test_a_session_that_grows_is_cut_in_steps_so_that_its_prompt_cache_is_of_use(contexts: Contexts) -> None:
    cuts = []
    for exchanges in range(40, 120):
        plan = await contexts.plan_for(request_of(talk(exchanges, words=1)), tenant_of(800), backend_of())
        assert plan.tokens_after <= 800
        cuts.append(len(plan.drop))
    assert cuts == sorted(cuts)
    assert cuts[-1] > cuts[0]
    assert len(set(cuts)) < len(cuts) / 4


async def test_a_giant_tool_result_in_progress_is_shortened_but_not_dropped(contexts: Contexts) -> None:
    turns = [
        *talk(2),
        turn("assistant", calls=["a"]),
        turn("tool", "line of a very long log\n" * 5000, results=["a"]),
    ]
    plan = await contexts.plan_for(request_of(turns), tenant_of(2000), backend_of())
    assert plan.drop == {1, 2, 3, 4}
    assert set(plan.replace) == {7}
    assert "left out here by the gateway" in plan.replace[7]
    assert plan.tokens_after <= 2000


async def test_the_backends_window_counts_minus_the_answer(contexts: Contexts) -> None:
    request = request_of(talk(20), max_output_tokens=400)
    plan = await contexts.plan_for(request, tenant_of(), backend_of(2000))
    assert plan.touched
    assert plan.tokens_after <= 1600


async def test_a_client_that_always_asks_for_the_longest_answer_is_not_shut_out(contexts: Contexts) -> None:
    plan = await contexts.plan_for(request_of(talk(1), max_output_tokens=100_000), tenant_of(), backend_of(2000))
    assert not plan.touched


async def test_another_family_of_tokenizers_gets_a_margin(contexts: Contexts) -> None:
    request = request_of(talk(20), max_output_tokens=400)
    own = await contexts.plan_for(request, tenant_of(), backend_of(2000))
    other = await contexts.plan_for(request, tenant_of(), backend_of(2000, model="claude-haiku"))
    assert other.tokens_after < own.tokens_after


async def test_what_may_fit_a_providers_window_is_trimmed_only_after_a_refusal(
    contexts: Contexts, counter: Counter
) -> None:
    """The family's factor says that it does not fit; the provider's own tokenizer decides."""
    request = request_of(talk(20), max_output_tokens=400)
    size = (await measure.sizes(request, counter, "o200k_base")).total
    backend = hosted_of(size + 450, model="mistral-large")
    assert not (await contexts.plan_for(request, tenant_of(), backend)).touched
    request.too_long_for = frozenset({"other"})
    assert not (await contexts.plan_for(request, tenant_of(), backend)).touched
    request.too_long_for = frozenset({backend.name})
    plan = await contexts.plan_for(request, tenant_of(), backend)
    assert plan.touched
    assert plan.tokens_after * 1.15 + 400 <= size + 450


async def test_an_own_server_may_drop_what_does_not_fit_so_its_family_factor_counts(
    contexts: Contexts, counter: Counter
) -> None:
    request = request_of(talk(20), max_output_tokens=400)
    size = (await measure.sizes(request, counter, "o200k_base")).total
    backend = backend_of(size + 450, model="qwen3", location="local")
    assert (await contexts.plan_for(request, tenant_of(), backend)).touched


@pytest.mark.parametrize(("model", "touched"), [("claude-opus-4-6", False), ("claude-3-7-sonnet", True)])
async def test_a_long_answer_takes_no_room_where_the_provider_ends_it_at_the_window(
    contexts: Contexts, counter: Counter, model: str, touched: bool
) -> None:
    request = request_of(talk(40), max_output_tokens=1000)
    size = (await measure.sizes(request, counter, "o200k_base")).total
    plan = await contexts.plan_for(request, tenant_of(), hosted_of(size + 500, model=model))
    assert plan.touched is touched


@pytest.mark.parametrize(("untouched", "enabled"), [(True, True), (False, False)])
async def test_without_leave_to_trim_only_the_window_limits(contexts: Contexts, untouched: bool, enabled: bool) -> None:
    request = request_of(talk(10), untouched=untouched)
    plan = await contexts.plan_for(request, tenant_of(800, enabled=enabled), backend_of(64_000))
    assert not plan.touched
    with pytest.raises(ContextTooLong, match=r"the window of small \(900 tokens.*let the gateway trim"):
        await contexts.plan_for(request, tenant_of(800, enabled=enabled), backend_of(900))


async def test_a_question_that_alone_is_too_long_is_refused_with_figures_and_a_remedy(contexts: Contexts) -> None:
    request = request_of([turn("system", "Be brief."), turn("user", WORDS * 300)])
    with pytest.raises(ContextTooLong, match=r"has \d{4} tokens .* allows 500\. .*max_input_tokens") as met:
        await contexts.plan_for(request, tenant_of(500), backend_of())
    assert (met.value.status, met.value.code, met.value.param) == (400, "context_length_exceeded", "messages")


async def test_the_least_of_an_estimate_leaves_out_what_may_go(contexts: Contexts) -> None:
    found = contexts.estimate(request_of(talk(20)))
    assert found.least < found.tokens / 5
    same = contexts.estimate(request_of(talk(20), untouched=True))
    assert same.least == same.tokens


# ── what must always hold ──────────────────────────────────────────────────────────────────────────────────────────

texts = st.builds(lambda word, times: word * times, st.sampled_from(["ab ", "é¿", "漢", "x1;\n"]), st.integers(0, 400))


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    turns: list[Turn] = []
    if draw(st.booleans()):
        turns.append(turn("system", draw(texts)))
    ids = (f"c{number}" for number in range(1000)) if draw(st.booleans()) else iter(["same"] * 1000)
    for _ in range(draw(st.integers(1, 6))):
        turns.append(turn("user", draw(texts), images=draw(st.sampled_from([0, 0, 0, 1]))))
        for _ in range(draw(st.integers(0, 3))):
            calls = list(dict.fromkeys(next(ids) for _ in range(draw(st.integers(0, 3)))))
            turns.append(turn("assistant", draw(texts), calls=calls))
            turns.extend(turn("tool", draw(texts), results=[call]) for call in calls)
        if draw(st.integers(0, 9)) == 0:
            turns.append(turn("system", draw(texts)))
    return turns


def kept(request: CompletionRequest, plan: ContextPlan) -> list[Turn]:
    return [one for one in request.turns if one.index not in plan.drop]


def unpaired(turns: Sequence[Turn]) -> list[str]:
    """Calls without a result and results without a call before them."""
    waiting: list[str] = []
    lost = []
    for one in turns:
        for result in one.results:
            if result in waiting:
                waiting.remove(result)
            else:
                lost.append(result)
        waiting.extend(one.calls)
    return waiting + lost


async def least(request: CompletionRequest, counter: Counter) -> int:
    """Tokens of what may never go, with every text that may be shortened at its shortest."""
    sizes = await measure.sizes(request, counter, "o200k_base")
    asked, total = last_user(request.turns), sizes.fixed
    for group in groups(request.turns):
        for place in group.turns if group.kept else ():
            one = request.turns[place]
            fixed = one.role == "system" or place == asked or one.images
            text = sizes.texts[place]
            total += sizes.turns[place] - (0 if fixed else text - min(text, LEAST_TOKENS))
    return total


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=conversations(), limit=st.integers(20, 2500))
async def test_trimming_keeps_pairs_order_system_and_question_and_the_limit(
    contexts: Contexts, counter: Counter, turns: list[Turn], limit: int
) -> None:
    request = request_of(turns)
    try:
        plan = await contexts.plan_for(request, tenant_of(limit), backend_of())
    except ContextTooLong:
        assert await least(request, counter) > limit
        return
    left = kept(request, plan)
    assert unpaired(left) == []
    assert request.turns[last_user(request.turns)] in left
    assert all(one in left for one in request.turns if one.role == "system")
    newest = max(groups(request.turns), key=lambda group: group.turns[-1])
    assert not plan.drop & {request.turns[place].index for place in newest.turns}
    untouchable = {last_user(request.turns)} | {one.index for one in request.turns if one.role == "system"}
    assert not untouchable & set(plan.replace)
    if plan.touched:
        shown = request_of(
            [
                Turn(-1, one.role, plan.replace.get(one.index, one.text), one.calls, one.results, one.images)
                for one in left
            ]
        )
        exact = (await measure.sizes(shown, counter, "o200k_base")).total
        assert exact == plan.expected_tokens <= limit
    else:
        assert plan.expected_tokens <= limit
