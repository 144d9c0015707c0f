from __future__ import annotations

from training.edits import Editor

TEXTS = ["How do trains cross the border near Basel?", "¿Cómo llego a Lima?", "Does the old bakery sell bread?"]
QUESTION = "How many trains stop in Basel before 9 in the morning?"


def editor() -> Editor:
    return Editor(TEXTS, ["in one sentence"], ["really"], seed=3)


def test_every_edit_changes_a_question_that_has_something_to_change() -> None:
    assert all(edit(QUESTION) != QUESTION for edit in editor().edits)


def test_an_edit_leaves_a_text_alone_that_has_nothing_to_change() -> None:
    made = editor()
    assert [edit("go on") for edit in (made.number, made.name, made.asked, made.negated, made.dropped)] == ["go on"] * 5


def test_one_seed_makes_the_same_edits() -> None:
    first, second = editor(), editor()
    assert [edit(QUESTION) for edit in first.edits] == [edit(QUESTION) for edit in second.edits]


def test_an_aside_keeps_all_words() -> None:
    assert set(QUESTION.rstrip("?").split()) < set(editor().aside(QUESTION).rstrip("?").split())
