"""Which old outputs are left out of a session, and when."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.context.cuts import needed
from gateway.context.cuts.outputs import lines_in
from gateway.context.cuts.session import Cut, SessionCuts, first_request, shapes_of
from gateway.domain.prompt_cache import rules_of
from gateway.domain.request import CompletionRequest
from tests.context.cuts.conversations import Talk, listing


def cut(request: CompletionRequest, session: SessionCuts | None = None, model: str = "claude-opus-4-6") -> Cut:
    session = session or SessionCuts(rules_of(model), 1.2)
    return session.cut(request, shapes_of(request.turns), 0)


def grown(talk: Talk, session: SessionCuts | None = None) -> list[Cut]:
    """The cut of every request of a session."""
    session = session or SessionCuts(rules_of("claude-opus-4-6"), 1.2)
    ends = [at for at, message in enumerate(talk.messages, 1) if message["role"] == "user"]
    return [cut(talk.request(end), session) for end in ends]


def test_a_long_session_leaves_out_old_outputs_in_few_batches_and_keeps_the_newest() -> None:
    talk = Talk()
    talk.steps(60)
    cuts = grown(talk)
    batches = [len(now.texts) - len(before.texts) for before, now in pairwise(cuts)]
    assert 1 <= sum(new > 0 for new in batches) <= 6
    assert min(new for new in batches if new) >= 3
    assert cuts[-1].tokens > 20_000
    newest = {len(talk.messages) - 1 - 2 * back for back in range(10)}
    assert newest.isdisjoint(cuts[-1].texts)


def test_what_was_left_out_stays_left_out_with_the_same_text() -> None:
    talk = Talk()
    talk.steps(60)
    cuts = grown(talk)
    for before, now in pairwise(cuts):
        assert before.texts.items() <= now.texts.items()


@pytest.mark.parametrize("thinks", [False, True])
def test_a_worker_that_does_not_know_the_session_makes_the_same_cuts(thinks: bool) -> None:
    talk = Talk()
    for _ in range(4):
        talk.steps(16, thinks=thinks)
        talk.says("And the others?")
    cuts = grown(talk)
    assert cuts[-1].texts
    ends = [at for at, message in enumerate(talk.messages, 1) if message["role"] == "user"]
    for end, known in list(zip(ends, cuts, strict=True))[::7]:
        assert cut(talk.request(end)) == known


def test_a_short_session_is_left_as_it_is() -> None:
    talk = Talk()
    talk.steps(10)
    assert not any(found.texts for found in grown(talk))


def test_an_output_from_which_a_later_call_quotes_stays() -> None:
    """No tool's name says that the call edits."""
    talk = Talk()
    quoted = talk.step("shed/north.txt")
    line = listing("shed/north.txt").split("\n")[70].partition("\t")[2]
    talk.step("shed/north.txt", "ok", old=f"x\n{line}\ny", new="z")
    unquoted = talk.step("shed/south.txt")
    talk.steps(60)
    left_out = grown(talk)[-1].texts
    assert unquoted in left_out
    assert quoted not in left_out


def test_a_quoted_output_goes_when_a_newer_one_repeats_it_and_the_newer_one_stays() -> None:
    talk = Talk()
    talk.steps(1)  # the cache keeps what precedes it
    old = talk.step("shed/north.txt")
    line = listing("shed/north.txt").split("\n")[70].partition("\t")[2]
    talk.step("shed/north.txt", "ok", old=f"x\n{line}\ny", new="z")
    again = talk.step("shed/north.txt")
    talk.steps(60)
    left_out = grown(talk)[-1].texts
    assert old in left_out
    assert again not in left_out


def test_nothing_before_signed_thinking_of_the_current_loop_changes() -> None:
    talk = Talk()
    talk.steps(60, thinks=True)
    assert not any(found.texts for found in grown(talk))
    talk.says("And the others?")
    found = grown(talk)[-1]
    assert found.texts
    first = min(found.texts)
    assert found.no_thinking == {at for at in range(first, len(talk.messages) - 2) if at % 2}


def test_words_of_the_user_beside_a_result_keep_it() -> None:
    talk = Talk()
    place = talk.step("shed/north.txt")
    talk.messages[place]["content"].append({"type": "text", "text": "never touch the billing module"})
    talk.steps(60)
    found = grown(talk)[-1].texts
    assert found
    assert place not in found


def test_what_stays_says_what_was_left_out_and_how_to_get_it_again() -> None:
    talk = Talk()
    talk.steps(60)
    text = next(iter(grown(talk)[-1].texts.values()))
    lines = text.split("\n")
    assert lines[0].startswith("0\tthe parcel")
    assert lines[-1].startswith("149\tthe parcel")
    assert any("left out by the gateway; repeat the call to read them" in line for line in lines)
    assert len(text) < 500


def test_the_cut_begins_behind_what_the_cache_keeps() -> None:
    talk = Talk()
    talk.steps(60)
    cuts = grown(talk)
    assert cuts[0].anchor == first_request(talk.request().turns) == 1
    for before, now in pairwise(cuts):
        if new := now.texts.keys() - before.texts.keys():
            assert min(new) >= before.anchor
            assert now.anchor == max(new) + 1


def test_a_cache_that_keeps_every_request_for_half_an_hour_is_cut_more_often() -> None:
    """It still has the end of the request before the cut, so a cut costs less."""
    talk = Talk()
    talk.steps(60)
    marked = SessionCuts(rules_of("claude-opus-4-6"), 1.0)
    alone = SessionCuts(rules_of("gpt-5.6"), 1.0)
    times = [len({len(found.texts) for found in grown(talk, session)}) for session in (marked, alone)]
    assert times[1] > times[0] > 1


def test_a_rewind_to_a_history_of_equal_lengths_is_another_history() -> None:
    talk = Talk()
    talk.steps(30)
    session = SessionCuts(rules_of("claude-opus-4-6"), 1.2)
    cut(talk.request(), session)
    assert session.follows(shapes_of(talk.request().turns))
    del talk.messages[59:]
    talk.step("shed/29-29.txt")
    assert not session.follows(shapes_of(talk.request().turns))


def edited() -> Talk:
    """A session with edits of its outputs, and with outputs that repeat earlier ones, also of edited files."""
    talk = Talk()
    for number in range(70):
        name = f"shed/{number * 7 % 12}.txt"
        line = listing(name).split("\n")[number].partition("\t")[2]
        if number % 5 == 3:
            talk.step(name, "ok", old=f"x\n{line}\ny", new="z")
        else:
            talk.step(name, listing(name, 60 + number) if number % 3 else listing(f"other/{number}.txt"))
        if number % 9 == 8:
            talk.says("And the others?")
    return talk


@pytest.mark.parametrize("model", ["claude-opus-4-6", "gpt-5.6", "gpt-5.1"])
def test_reading_lines_only_if_a_cut_depends_on_them_makes_the_same_cuts(model: str) -> None:
    talk, cuts = edited(), 0
    lazy, whole = SessionCuts(rules_of(model), 1.2), SessionCuts(rules_of(model), 1.2, weighs_all=True)
    for end in range(1, len(talk.messages) + 1, 2):
        found = cut(talk.request(end), lazy)
        assert found == cut(talk.request(end), whole) == cut(talk.request(end), model=model)
        cuts += bool(found.texts)
    assert cuts


def test_outputs_without_influence_on_a_cut_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reads(text: str) -> frozenset[int]:
        read.append(text)
        return lines_in(text)

    monkeypatch.setattr(needed, "lines_in", reads)
    talk = Talk()
    talk.steps(60, thinks=True)
    assert not cut(talk.request()).texts
    assert sum(text.startswith("0\tthe parcel") for text in read) == 1  # the first one decides about the anchor


def test_a_chain_of_thousands_of_outputs_is_followed_without_recursion() -> None:
    talk = Talk()
    for number in range(2000):
        names = f"chain/{number}.txt chain/{number + 1}.txt"
        talk.step(names, "\n".join(f"line {each} of the chain of outputs" for each in range(number, number + 60)))
    talk.says("And the others?")
    assert cut(talk.request()).anchor
