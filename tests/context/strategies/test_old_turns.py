"""Which notes are usable, and to which histories they belong."""

from __future__ import annotations

from dataclasses import replace

from gateway.context.strategies.old_turns import MOST_BYTES, Draft, Notes, digests, draft, loaded, valid
from gateway.domain.request import Turn
from tests.old_turns.sessions import asked


def drafted() -> Draft:
    found = draft(asked(), {}, (), answers=True)
    assert found is not None
    return found


def test_notes_without_the_names_that_recent_calls_use_are_unusable() -> None:
    found = replace(drafted(), needed=("yard/a.txt", "yard/b.txt", "yard/c.txt", "yard/d.txt"))
    assert found.notes("Only yard/a.txt lists crates.") is None
    assert found.notes("Both yard/a.txt and yard/b.txt list crates.") is not None


def test_empty_notes_and_notes_that_save_nothing_are_unusable() -> None:
    assert drafted().notes(" \n\x1b\u202e ") is None
    assert replace(drafted(), tokens=300).notes("word " * 400) is None


def test_long_notes_end_with_a_whole_line() -> None:
    notes = drafted().notes("\n".join("eight by eight " * 8 for _ in range(100)))
    assert notes is not None
    lines = notes.text.split("\n")[1:]
    assert len("\n".join(lines)) <= MOST_BYTES
    assert set(lines) == {"> " + ("eight by eight " * 8).rstrip()}


def test_answers_stay_if_they_may_be_reported_as_wrong_later() -> None:
    request = asked()
    found = draft(request, {}, (), answers=False)
    assert found is not None
    assert {request.turns[place].role for place in found.places} == {"tool"}
    assert "It lists the crates" not in found.messages[1]["content"]


def test_notes_belong_to_one_history_whatever_the_system_prompt_says() -> None:
    turns = [Turn(-1, "system", "It is 9 o'clock."), Turn(0, "user", "Hello."), Turn(1, "assistant", "Yes?")]
    notes = Notes(3, digests(turns, [3])[3], (2,), 2, "[notes]")
    assert valid(turns, [notes]) == [notes]
    assert valid([replace(turns[0], text="It is 10 o'clock."), *turns[1:]], [notes]) == [notes]
    assert valid([*turns[:1], replace(turns[1], text="Hello"), turns[2]], [notes]) == []
    assert valid(turns[:2], [notes]) == []


def test_stored_notes_of_another_version_are_ignored() -> None:
    notes = Notes(3, "digest", (2,), 2, "[notes]")
    assert loaded(notes.dumped()) == notes
    assert loaded(b'{"version":2}') is None
    assert loaded(b"[1]") is None
