"""One request's strategy: whom it asks and whose answer it gives."""

from __future__ import annotations

import pytest

from gateway.domain.routing.strategy import FAILED, StrategyAnswer
from gateway.routing.fit.cascades import Cascade, states
from gateway.routing.strategy.strategy import RunState, State, Strategy, pattern, share_of, voted

MODELS = ("a", "b", "c", "d")
RANKING = ("d", "c", "b", "a")


def underway(agree: int = 2, members: tuple[int, ...] = (0, 1, 2, 3), without: str = "") -> RunState:
    cascade = Strategy("cascade", "", 0.9, 1.0, states(Cascade(members, agree), MODELS), RANKING)
    return RunState(cascade, (1.0,), {name: name.upper() for name in MODELS if name not in without})


def answers(*votes: str | None) -> list[StrategyAnswer]:
    return [StrategyAnswer(name, vote) for name, vote in zip("ABCD", votes, strict=False)]


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        (answers(), ("A",)),
        (answers("7"), ("B",)),
        (answers("7", "7"), ()),
        (answers("7", "8"), ("C",)),
        (answers("7", None), ("C",)),
        (answers(None), ("B",)),
        (answers("7", "8", "7"), ()),
        (answers("7", "8", "9"), ("D",)),
        (answers("7", "8", "9", "6"), ()),
    ],
)
def test_a_cascade_asks_until_two_agree(answers: list[StrategyAnswer], wanted: tuple[str, ...]) -> None:
    assert underway().next(answers) == wanted


@pytest.mark.parametrize(
    ("answers", "wanted"), [(answers("7", "7"), ()), (answers("7", "7", "8"), ("D",)), (answers("7", "7", "7"), ())]
)
def test_three_may_have_to_agree(answers: list[StrategyAnswer], wanted: tuple[str, ...]) -> None:
    assert underway(agree=3).next(answers) == (wanted or (("C",) if len(answers) == 2 else ()))


@pytest.mark.parametrize(
    ("answers", "place"),
    [
        (answers("7", "8", "7"), 2),
        (answers("7", "8", "9", "6"), 3),
        (answers("7", None), 0),
        ([*answers("7", "7"), StrategyAnswer("C", None, FAILED)], 1),
        ([StrategyAnswer("A", "7", "truncated"), StrategyAnswer("B", "8")], 1),
        ([StrategyAnswer("A", None, FAILED), StrategyAnswer("B", None, "refusal")], 1),
    ],
)
def test_what_most_agree_on_is_given_by_the_best_of_them(answers: list[StrategyAnswer], place: int) -> None:
    assert underway().serves(answers) == place


def test_who_failed_or_cannot_be_asked_is_not_asked() -> None:
    assert underway(without="a").next([]) == ("D",)
    assert underway().next([StrategyAnswer("A", None, FAILED)]) == ("D",)
    assert underway().next([StrategyAnswer("A", None, "refusal")]) == ("B",)


def test_while_nothing_is_fit_to_be_shown_the_best_one_left_is_asked() -> None:
    weak = [StrategyAnswer(name, None, "empty") for name in "ABC"]
    assert underway(agree=2, members=(0, 1, 2)).next(weak) == ("D",)


def test_nobody_is_asked_twice_and_it_ends() -> None:
    answers: list[StrategyAnswer] = []
    asking = underway(agree=3)
    while wanted := asking.next(answers):
        answers += [StrategyAnswer(name, f"{len(answers)}") for name in wanted]
    assert [each.backend for each in answers] == ["A", "B", "C", "D"]


def test_the_prompt_decides_where_worth_depends_on_it() -> None:
    first = State(ask={"a": (1.0, -1.0), "d": (0.0, 1.0)})
    strategy = Strategy("prompt-conditional choice", "", 0.9, 1.0, {((), ()): first}, RANKING)
    able = {name: name for name in MODELS}
    assert RunState(strategy, (1.0, 2.0), able).next([]) == ("d",)
    assert RunState(strategy, (1.0, -2.0), able).next([]) == ("a",)
    assert RunState(strategy, (1.0, -2.0), able).next([StrategyAnswer("a", "7")]) == ()


def test_a_pattern_forgets_order_and_wording() -> None:
    one = pattern([StrategyAnswer("b", "x"), StrategyAnswer("a", "y"), StrategyAnswer("c", "x")])
    assert (
        one
        == pattern([StrategyAnswer("c", "8"), StrategyAnswer("b", "8"), StrategyAnswer("a", "9")])
        == (("a", "b", "c"), (1, 2, 2))
    )


def test_a_missing_vote_stands_alone() -> None:
    assert voted((("a", "b", "c"), (0, 1, 0))) == (("a", "b", "c"), (1, 2, 3))


def test_a_subject_always_draws_the_same() -> None:
    assert share_of("s1") == share_of("s1") != share_of("s2")
    assert sum(share_of(f"s{number}") < 0.3 for number in range(2000)) == pytest.approx(600, abs=60)
