"""Who remembers a conversation, for how long, and that nobody else's is taken for it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import LONG_S, SHORT_S
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, Controls, Turn
from gateway.domain.routing.route import Prefix, Route
from gateway.routing.affinity.sessions import OWN_S, Sessions, prefix_of
from tests.routing.conftest import HOSTED, SMALL, backend, record, request

CLAUDE = backend("claude", "hosted", "3", kind="anthropic")
GPT = backend("gpt", "hosted", "3", model="gpt-5.6-terra")
FIRST = [Turn(0, "system", "You book trips."), Turn(1, "user", "To Lisbon, please.")]
SECOND = [*FIRST, Turn(2, "assistant", "When?"), Turn(3, "user", "In May.")]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(monotonic=clock)


def session_request(turns: list[Turn], **changes: Any) -> CompletionRequest:
    return request(turns=turns, **changes)


def answered(
    by: Backend, prefix: Prefix, usage: Usage, *, finish: str = "stop", outcome: Any = "ok", trimmed: int = 0
) -> Record:
    done = record(request())
    done.route, done.finish = Route((by,), "test", prefix=prefix), finish
    attempt = done.attempt(by)
    attempt.usage, attempt.outcome, attempt.trimmed_tokens = usage, outcome, trimmed
    return done


def test_the_next_turn_finds_what_was_sent_warm_there_and_nowhere_else(sessions: Sessions, clock: Clock) -> None:
    sessions.learn(answered(HOSTED, prefix_of(session_request(FIRST), "key_1"), Usage(2000, output_tokens=50)))
    following = prefix_of(session_request(SECOND), "key_1")
    assert sessions.warm_tokens(following, HOSTED, 2500) == 1920  # whole steps of 128
    assert sessions.warm_tokens(following, HOSTED, 1500) == 1500
    assert sessions.warm_tokens(following, SMALL, 2500) == 0
    clock.now += SHORT_S + 1
    assert sessions.warm_tokens(following, HOSTED, 2500) == 0


def test_the_same_words_of_another_key_are_another_session(sessions: Sessions) -> None:
    sessions.learn(answered(HOSTED, prefix_of(session_request(FIRST), "key_1"), Usage(2000)))
    assert sessions.warm_tokens(prefix_of(session_request(SECOND), "key_2"), HOSTED, 2500) == 0
    named = Controls(session="s1")
    mine, theirs = (prefix_of(session_request(FIRST, controls=named), key) for key in ("key_1", "key_2"))
    assert mine.session != theirs.session


def test_a_name_given_by_the_client_tells_sessions_apart() -> None:
    plain, named = (
        prefix_of(session_request(FIRST), "k"),
        prefix_of(session_request(FIRST, controls=Controls(session="a")), "k"),
    )
    keyed = prefix_of(session_request(FIRST, body={"prompt_cache_key": "a"}), "k")
    somebody = prefix_of(session_request(FIRST, body={"metadata": {"user_id": "u"}}), "k")
    assert len({plain.session, named.session, somebody.session}) == 3
    assert keyed.session == named.session
    other = [FIRST[0], Turn(1, "user", "To Porto, please.")]
    assert prefix_of(session_request(other), "k").session != plain.session
    assert prefix_of(session_request(other, controls=Controls(session="a")), "k").session == named.session


def test_a_history_that_was_rewritten_is_cold(sessions: Sessions) -> None:
    named = Controls(session="a")
    sessions.learn(answered(HOSTED, prefix_of(session_request(SECOND, controls=named), "k"), Usage(2000)))
    compacted = [SECOND[0], Turn(1, "user", "Summary: Lisbon in May."), Turn(2, "assistant", "Fine."), SECOND[1]]
    assert sessions.warm_tokens(prefix_of(session_request(compacted, controls=named), "k"), HOSTED, 2500) == 0
    assert sessions.warm_tokens(prefix_of(session_request(SECOND, controls=named), "k"), HOSTED, 2500) == 1920


@pytest.mark.parametrize(
    ("by", "usage", "warm", "seconds"),
    [
        (HOSTED, Usage(1000), 0, SHORT_S),  # too short for the provider
        (CLAUDE, Usage(9000), 0, SHORT_S),  # nothing was marked
        (CLAUDE, Usage(10, cached_tokens=500, cache_write_5m_tokens=700), 1200, SHORT_S),
        (CLAUDE, Usage(10, cache_write_1h_tokens=700), 700, LONG_S),
        (GPT, Usage(1100), 1024, 1800.0),
        (SMALL, Usage(1100), 1100, OWN_S),
    ],
)
def test_each_kind_keeps_what_its_provider_says(
    sessions: Sessions, clock: Clock, by: Backend, usage: Usage, warm: int, seconds: float
) -> None:
    prefix = prefix_of(session_request(FIRST), "k")
    sessions.learn(answered(by, prefix, usage))
    assert sessions.warm_tokens(prefix, by, 10**6) == warm
    clock.now += seconds - 1
    assert sessions.warm_tokens(prefix, by, 10**6) == warm
    clock.now += 2
    assert sessions.warm_tokens(prefix, by, 10**6) == 0


def test_what_a_backend_does_not_keep_is_believed_less_and_less(sessions: Sessions) -> None:
    prefix = prefix_of(session_request(FIRST), "k")
    seen = []
    for _ in range(8):
        sessions.learn(answered(HOSTED, prefix, Usage(2048, cached_tokens=0)))
        seen.append(sessions.warm_tokens(prefix, HOSTED, 2048))
    assert seen[0] == 2048  # nothing was expected of the first
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 512
    sessions.learn(answered(HOSTED, prefix, Usage(0, cached_tokens=2048)))
    assert sessions.warm_tokens(prefix, HOSTED, 2048) > seen[-1]


@pytest.mark.parametrize("changes", [{"outcome": "interrupted"}, {"trimmed": 5}])
def test_only_a_whole_answer_to_an_untouched_prompt_counts(sessions: Sessions, changes: dict[str, Any]) -> None:
    prefix = prefix_of(session_request(FIRST), "k")
    sessions.learn(answered(HOSTED, prefix, Usage(2000), **changes))
    assert sessions.warm_tokens(prefix, HOSTED, 2000) == 0


def test_a_tool_loop_stays_where_it_is_and_ordinary_turns_do_not(sessions: Sessions, clock: Clock) -> None:
    called = [*FIRST, Turn(2, "assistant", "", calls=("c1",)), Turn(3, "tool", "17 °C", results=("c1",))]
    loop = prefix_of(session_request(called), "k")
    assert loop.in_tool_loop
    assert sessions.holder(loop) == ""
    sessions.learn(answered(SMALL, prefix_of(session_request(FIRST), "k"), Usage(40), finish="tool_calls"))
    assert sessions.holder(loop) == "small"
    assert sessions.holder(prefix_of(session_request([*called, Turn(4, "user", "And Porto?")]), "k")) == ""
    in_a_user_turn = [*called[:-1], Turn(3, "user", "", results=("c1",))]  # as Anthropic's clients say it
    assert sessions.holder(prefix_of(session_request(in_a_user_turn), "k")) == "small"
    clock.now += OWN_S + 1
    assert sessions.holder(loop) == ""


def test_a_tool_loop_stays_where_it_is_also_when_its_request_was_trimmed(sessions: Sessions) -> None:
    called = [*FIRST, Turn(2, "assistant", "", calls=("c1",)), Turn(3, "tool", "17 °C", results=("c1",))]
    before, loop = prefix_of(session_request(FIRST), "k"), prefix_of(session_request(called), "k")
    sessions.learn(answered(SMALL, before, Usage(4000), finish="stop"))
    sessions.learn(answered(HOSTED, before, Usage(2000), finish="tool_calls", trimmed=500))
    assert sessions.holder(loop) == "hosted"
    assert sessions.warm_tokens(loop, HOSTED, 2000) == 0  # the next request does not begin with what was sent


def test_memory_is_bounded_in_sessions_and_backends(clock: Clock) -> None:
    sessions = Sessions(most=3, monotonic=clock)
    prefixes = [prefix_of(session_request(FIRST, controls=Controls(session=str(number))), "k") for number in range(5)]
    for prefix in prefixes:
        sessions.learn(answered(HOSTED, prefix, Usage(2048)))
    assert [bool(sessions.warm_tokens(prefix, HOSTED, 2048)) for prefix in prefixes] == [False] * 2 + [True] * 3
    many = [backend(f"b{number}", "hosted", "1") for number in range(6)]
    for each in many:
        sessions.learn(answered(each, prefixes[-1], Usage(2048)))
    assert [bool(sessions.warm_tokens(prefixes[-1], each, 2048)) for each in many] == [False] * 2 + [True] * 4
    assert sessions.stats()["sessions"] == 3


def test_what_an_agent_does_beside_its_main_conversation_is_another_one() -> None:
    """Its helpers and background calls have the same session, but other models and first questions."""

    def of_agent(text: str, model: str = "big", system: str = "s", **more: Any) -> bytes:
        turns = [Turn(-1, "system", system), Turn(0, "user", text)]
        asked = request(model=model, turns=turns, agent="claude_code", agent_session="a", **more)
        return prefix_of(asked, "k", "a").session

    main = of_agent("fix the bug")
    assert main == of_agent("fix the bug", system="its first line differs in each request")
    assert len({main, of_agent("fix the bug", model="little"), of_agent("find the file")}) == 3
    named = of_agent("fix the bug", controls=Controls(session="mine"))
    assert named == of_agent("find the file", controls=Controls(session="mine"))
