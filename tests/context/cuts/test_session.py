"""Which old outputs are left out of a session, and when."""

from __future__ import annotations

from itertools import pairwise

import pytest

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
