from __future__ import annotations

from collections.abc import Sequence

from gateway.context.groups import groups, last_user
from gateway.domain.request import Turn
from tests.context.conftest import turn


def shape(turns: Sequence[Turn]) -> list[tuple[tuple[int, ...], bool]]:
    return [(group.turns, group.kept) for group in groups(turns)]


def test_an_exchange_is_a_group_and_system_prompt_and_last_question_are_kept() -> None:
    turns = [turn("system"), turn("user"), turn("assistant"), turn("user"), turn("assistant"), turn("user")]
    assert shape(turns) == [((0,), True), ((1, 2), False), ((3, 4), False), ((5,), True)]


def test_an_old_exchange_keeps_its_tool_calls_together() -> None:
    turns = [
        turn("user"),
        turn("assistant", calls=["a", "b"]),
        turn("tool", results=["a"]),
        turn("tool", results=["b"]),
        turn("assistant"),
        turn("user"),
    ]
    assert shape(turns) == [((0, 1, 2, 3, 4), False), ((5,), True)]


def test_steps_after_the_last_question_are_groups_and_the_newest_is_kept() -> None:
    turns = [
        turn("user"),
        turn("assistant", calls=["a"]),
        turn("tool", results=["a"]),
        turn("assistant", calls=["b"]),
        turn("tool", results=["b"]),
    ]
    assert shape(turns) == [((0,), True), ((1, 2), False), ((3, 4), True)]


def test_a_late_result_joins_its_call_across_exchanges() -> None:
    turns = [turn("user"), turn("assistant", calls=["a"]), turn("user"), turn("tool", results=["a"])]
    assert shape(turns) == [((0, 1, 3), True), ((2,), True)]


def test_an_id_used_twice_means_the_nearest_call() -> None:
    turns = [
        turn("user"),
        turn("assistant", calls=["x"]),
        turn("tool", results=["x"]),
        turn("user"),
        turn("assistant", calls=["x"]),
        turn("tool", results=["x"]),
    ]
    assert shape(turns) == [((0, 1, 2), False), ((3,), True), ((4, 5), True)]


def test_a_user_turn_with_tool_results_is_not_the_last_question() -> None:
    turns = [turn("user"), turn("assistant", calls=["a"]), turn("user", results=["a"])]
    assert last_user(turns) == 0
    assert shape(turns) == [((0,), True), ((1, 2), True)]


def test_without_any_user_the_last_turn_is_kept() -> None:
    assert shape([turn("assistant"), turn("assistant")]) == [((0,), False), ((1,), True)]


def test_a_system_turn_in_the_middle_stays() -> None:
    turns = [turn("user"), turn("system"), turn("assistant"), turn("user")]
    assert shape(turns) == [((0, 2), False), ((1,), True), ((3,), True)]


def test_what_the_user_writes_beside_results_is_kept_while_the_tools_run() -> None:
    turns = [
        turn("user"),
        turn("assistant", calls=["a"]),
        turn("user", results=["a"]),
        turn("assistant", calls=["b"]),
        turn("tool", results=["b"]),
        turn("assistant", calls=["c"]),
        turn("tool", results=["c"]),
    ]
    turns[2].instructs = True
    assert shape(turns) == [((0,), True), ((1, 2), True), ((3, 4), False), ((5, 6), True)]
