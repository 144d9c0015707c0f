"""Errors that are repeated word for word: what is sent of them, and that it stays the same."""

from __future__ import annotations

from typing import Any, Literal

import orjson
import pytest

from gateway.context.count import Counter
from gateway.context.cuts.session import NO_CUT, Cut
from gateway.context.plan import Contexts
from gateway.context.strategies.repeated_errors import RepeatedErrors
from gateway.context.strategies.strategy import InTurn
from gateway.dialects.registry import translators
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant
from tests.context.conftest import hosted_of
from tests.support.requests import messages_request, user

ERROR = "Traceback: no module is named widgets\n" + "  at line 12 of main.py\n" * 40


def tenant(mode: Literal["once", "keep"] = "once", holdout: float = 0.0, most: int | None = None) -> Tenant:
    context = ContextPolicy(repeated_errors=mode, holdout=holdout, max_input_tokens=most)
    return Tenant(Key("k1", "search"), Policy(team="search", context=context))


def request(*results: str, failed: bool = True, **more: Any) -> CompletionRequest:
    """An agent's history, in which each call returned one of the `results`."""
    messages = [user("run the tests")]
    for number, text in enumerate(results):
        call = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"n": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text, "is_error": failed}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages_request(messages=messages, model="claude", **more)


async def replaced(given: CompletionRequest, who: Tenant | None = None, found: Cut = NO_CUT) -> set[int]:
    cut = await RepeatedErrors().cut(given, who or tenant(), found)
    return set(cut.texts) - set(found.texts)


async def test_only_the_first_of_equal_errors_is_sent_whole() -> None:
    given = request(ERROR, ERROR, "fine " * 100, ERROR, ERROR + "!")
    cut = await InTurn(RepeatedErrors()).cut(given, tenant(), NO_CUT)
    assert set(cut.texts) == {4, 8}
    assert cut.texts[4].startswith("Traceback: no module is named widgets")
    assert "the same error" in cut.texts[4]
    assert cut.tokens > 300


async def test_a_later_request_has_the_same_bytes_before_its_new_messages() -> None:
    backend = hosted_of(model="claude-sonnet-4-5")
    contexts = Contexts(Counter(), strategy=InTurn(RepeatedErrors()))
    bodies = []
    for results in ([ERROR, ERROR], [ERROR, ERROR, ERROR], [ERROR, ERROR, ERROR, "ok"]):
        given = request(*results)
        plan = await contexts.plan_for(given, tenant(), backend)
        assert plan.trimmed_tokens > 0
        assert plan.frozen
        wire = translators("anthropic_messages", ("anthropic_messages",))[0]
        bodies.append(orjson.loads(wire.body(given, "claude", plan))["messages"])
    assert bodies[1][: len(bodies[0])] == bodies[0]
    assert bodies[2][: len(bodies[1])] == bodies[1]
    assert ERROR not in orjson.dumps(bodies[2][3:]).decode()
    contexts.close()


async def test_the_first_copy_that_is_still_in_the_prompt_stays_whole() -> None:
    assert await replaced(request(ERROR, ERROR, ERROR), found=Cut({2: "cut"})) == {6}


@pytest.mark.parametrize(
    ("given", "who"),
    [
        (request(ERROR, ERROR), tenant("keep")),
        (request(ERROR, ERROR), tenant(holdout=1.0)),
        (request(ERROR, ERROR, controls=Controls(untouched=True)), tenant()),
        (request(ERROR, ERROR, failed=False), tenant()),
        (request("no", "no"), tenant()),
        (request(ERROR, ERROR, thinking={"type": "enabled", "budget_tokens": 1024}), tenant()),
    ],
    ids=["off by default", "held out", "untouched", "no error", "short", "thinking"],
)
async def test_everything_is_sent_whole(given: CompletionRequest, who: Tenant) -> None:
    if who.policy.context.holdout:
        given.agent_session = "s1"
    assert await replaced(given, who) == set()


async def test_results_beside_words_of_the_user_stay_whole() -> None:
    given = request(ERROR, ERROR)
    given.body["messages"][4]["content"].append({"type": "text", "text": "never touch the billing module"})
    given = messages_request(raw=orjson.dumps(given.body))
    assert await replaced(given) == set()


async def test_nothing_is_replaced_while_it_is_switched_off_for_the_team() -> None:
    cut = await RepeatedErrors(lambda team: team == "search").cut(request(ERROR, ERROR), tenant(), NO_CUT)
    assert cut is NO_CUT


@pytest.mark.parametrize("between", [0, 12], ids=["fits", "is trimmed"])
async def test_a_note_is_sent_only_with_the_whole_error(between: int) -> None:
    given = request(ERROR, *[f"fine{number} " * 300 for number in range(between)], ERROR, "ok")
    contexts = Contexts(Counter(), strategy=InTurn(RepeatedErrors()))
    plan = await contexts.plan_for(given, tenant(most=2000), hosted_of(model="claude-sonnet-4-5"))
    contexts.close()
    wire = translators("anthropic_messages", ("anthropic_messages",))[0]
    results = [
        part["content"]
        for message in orjson.loads(wire.body(given, "claude", plan))["messages"]
        for part in message["content"]
        if type(part) is dict and part["type"] == "tool_result"
    ]
    assert bool(plan.drop) is bool(between)
    assert plan.tokens_after <= 2000
    assert results.count(ERROR) == 1
    assert any("the same error" in result for result in results) is not bool(between)
