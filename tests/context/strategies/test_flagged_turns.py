"""Answers that were reported as wrong: from which request on they are left out, and which stay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import orjson
import pytest
import pytest_asyncio

from gateway.context.count import Counter
from gateway.context.cuts.session import NO_CUT, Cut
from gateway.context.plan import Contexts
from gateway.context.strategies.flagged_turns import MARK, FlaggedTurns, is_cheap
from gateway.context.strategies.flags import MOST_REPORTS, Flags, conversation_of, digest_of
from gateway.context.strategies.strategy import InTurn
from gateway.dialects.registry import translators
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant
from gateway.state.redis.connection import State
from tests.context.conftest import hosted_of
from tests.support.requests import request_in, user
from tests.support.waiting import until

WRONG = "The module is in billing.py, line 12. " * 10
LONG = "word " * 4000


def tenant(mode: Literal["leave_out", "keep"] = "leave_out", holdout: float = 0.0, key: str = "k1") -> Tenant:
    return Tenant(Key(key, "search"), Policy(team="search", context=ContextPolicy(flagged_turns=mode, holdout=holdout)))


def said(content: Any = WRONG) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def request(
    *more: dict[str, Any], wrong: Any = WRONG, dialect: str = "anthropic_messages", **f: Any
) -> CompletionRequest:
    """A session whose second turn is the wrong answer."""
    messages = [user("Where is the module?"), said(wrong), *(more or (user("Are you sure?"),))]
    f = {"controls": Controls(session="s1"), **f}
    return request_in(dialect, model="claude", **{"input" if "responses" in dialect else "messages": messages}, **f)


@pytest_asyncio.fixture
async def flags(state: State) -> AsyncIterator[Flags]:
    """The state of a worker that knows the wrong answer."""
    found = Flags(state)
    found.begin()
    await flag(state)
    await until(lambda: len(found))
    yield found
    await found.aclose()


async def flag(state: State, text: str = WRONG, key: str = "k1", request_id: str = "req_1") -> None:
    """Report the answer `text` of the session as wrong."""
    note = b"%b%b1" % (conversation_of(request(), key), digest_of(text))
    await state.call("SET", state.key("flags", "answer", "search", request_id), note)
    reporter = Flags(state)
    await reporter.report(request_id, "search", True)
    await reporter.aclose()


async def warm(state: State) -> None:
    """The provider's cache has the session's prompt."""
    await state.call("SET", state.key("flags", "cached", conversation_of(request(), "k1").hex()), "1")


async def left_out(flags: Flags, given: CompletionRequest, who: Tenant | None = None, found: Cut = NO_CUT) -> set[int]:
    cut = await FlaggedTurns(flags).cut(given, who or tenant(), found)
    return {place for place, text in cut.texts.items() if text == MARK}


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat", "openai_responses"])
async def test_the_mark_is_sent_from_the_first_request_on_and_the_bytes_before_new_messages_stay_equal(
    flags: Flags, dialect: str
) -> None:
    contexts = Contexts(Counter(), strategy=InTurn(FlaggedTurns(flags)))
    backend, bodies = hosted_of(model="claude-sonnet-4-5"), []
    for more in ([], [said("Yes."), user("Really?")], [said("Yes."), user("Really?"), said("No."), user("Ok.")]):
        given = request(user("Are you sure?"), *more, dialect=dialect)
        plan = await contexts.plan_for(given, tenant(), backend)
        wire = translators(dialect, (dialect,))[0]
        body = orjson.loads(wire.body(given, "claude", plan))
        bodies.append(body["input" if "responses" in dialect else "messages"])
    contexts.close()
    assert MARK in orjson.dumps(bodies[0][1]).decode()
    assert "billing.py" not in orjson.dumps(bodies).decode()
    assert bodies[1][: len(bodies[0])] == bodies[0]
    assert bodies[2][: len(bodies[1])] == bodies[1]


async def test_a_cached_prompt_is_changed_only_when_the_cache_has_expired_and_then_stays_changed(
    flags: Flags, state: State
) -> None:
    later = request(user(LONG), said("Yes."), user("Really?"))
    await warm(state)
    assert await left_out(flags, later) == set()
    await state.call("DEL", state.key("flags", "cached", conversation_of(later, "k1").hex()))
    assert await left_out(flags, later) == {1}
    await warm(state)
    assert await left_out(flags, later) == {1}
    other = Flags(state)
    other.begin()
    await until(lambda: other.current)
    assert await left_out(other, later) == {1}
    await other.aclose()


async def test_a_worker_without_the_newest_reports_sends_the_answer(flags: Flags, state: State) -> None:
    assert await left_out(Flags(state), request()) == set()


async def test_without_the_state_server_only_an_answer_that_is_not_cached_is_left_out(
    flags: Flags, state: State
) -> None:
    await state.aclose()
    assert await left_out(flags, request(user(LONG), said("Yes."), user("Really?"))) == set()
    assert await left_out(flags, request()) == {1}


async def test_an_answer_that_is_left_out_stays_out_if_the_report_is_taken_back(flags: Flags, state: State) -> None:
    assert await left_out(flags, request()) == {1}
    await flags.report("req_1", "search", False)
    await flag(state, "another answer")
    await until(lambda: len(flags.of(conversation_of(request(), "k1"))) == 2)
    assert await left_out(flags, request()) == {1}


CALL = {"type": "tool_use", "id": "c1", "name": "run", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
TEXT = {"type": "text", "text": WRONG}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "x"}


@pytest.mark.parametrize(
    ("given", "who"),
    [
        (request(), tenant("keep")),
        (request(), tenant(holdout=1.0)),
        (request(), tenant(key="k2")),
        (request(controls=Controls(session="s2")), tenant()),
        (request(controls=Controls(session="s1", untouched=True)), tenant()),
        (request(user([RESULT]), wrong=[TEXT, CALL]), tenant()),
        (request(wrong=[THOUGHT, TEXT]), tenant()),
        (request(user("Sure?"), said([THOUGHT, {"type": "text", "text": "Yes."}]), user("Ok.")), tenant()),
        (request(thinking={"type": "enabled", "budget_tokens": 1024}), tenant()),
        (request(output_config={"effort": "high"}), tenant()),
        (request(dialect="openai_chat", reasoning_effort="low"), tenant()),
        (request(wrong="Another answer."), tenant()),
    ],
    ids=[
        "off by default", "held out", "another key", "another session", "untouched", "a tool call", "its thinking",
        "later thinking", "asks for thinking", "asks for an effort", "asks for reasoning", "another answer",
    ],
)  # fmt: skip
async def test_nothing_is_left_out(flags: Flags, given: CompletionRequest, who: Tenant) -> None:
    assert await left_out(flags, given, who) == set()


async def test_the_mark_stays_in_later_requests_whose_thinking_was_signed_together_with_it(flags: Flags) -> None:
    assert await left_out(flags, request()) == {1}
    later = request(user("Sure?"), said([THOUGHT, {"type": "text", "text": "Yes."}]), user("Ok."))
    assert await left_out(flags, later) == {1}


async def test_the_same_conversation_of_another_end_user_of_the_key_keeps_its_answer(flags: Flags) -> None:
    assert await left_out(flags, request(metadata={"user_id": "eve"})) == set()
    assert await left_out(flags, request(controls=Controls(session="s1", end_user="eve"))) == set()


async def test_many_reports_of_one_answer_do_not_remove_other_reports_from_the_log(flags: Flags, state: State) -> None:
    for number in range(3 * MOST_REPORTS):
        await flags.report("req_1", "search", number % 2 == 0)
    assert await state.call("XLEN", state.key("log", "flags")) <= MOST_REPORTS


async def test_a_worker_keeps_a_limited_number_of_flags_of_one_conversation(state: State) -> None:
    small = Flags(state, most=3)
    small.begin()
    conversation = conversation_of(request(), "k1")
    for number in range(5):
        await flag(state, f"answer {number}", request_id=f"req_{number}")
    await until(lambda: digest_of("answer 4") in small.of(conversation))
    assert set(small.of(conversation)) == {digest_of(f"answer {number}") for number in (2, 3, 4)}
    await small.aclose()


async def test_an_answer_that_the_model_continues_stays(flags: Flags) -> None:
    given = request()
    assert await left_out(flags, request_in("anthropic_messages", messages=given.body["messages"][:2])) == set()


async def test_nothing_is_left_out_while_it_is_switched_off_for_the_team(flags: Flags) -> None:
    assert await FlaggedTurns(flags, lambda team: team == "search").cut(request(), tenant(), NO_CUT) is NO_CUT


@pytest.mark.parametrize(
    ("between", "cheap"), [([], True), ([user("short")], True), ([user(LONG)], False)], ids=["newest", "short", "long"]
)
def test_a_change_is_cheap_if_little_was_cached_after_it(between: list[dict[str, Any]], cheap: bool) -> None:
    older = [user(LONG), said("Yes.")] if between else []
    messages = [*older, user("Where?"), said(), *between, said("Here."), user("Ok.")] if between else None
    given = request() if messages is None else request_in("anthropic_messages", messages=messages)
    assert is_cheap(given.turns, 3 if between else 1) is cheap
