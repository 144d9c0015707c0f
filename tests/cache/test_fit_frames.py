from __future__ import annotations

from itertools import combinations

import orjson
import pytest

from training.frames import FRAMES, Frames

OWN = orjson.loads(FRAMES.read_bytes())


@pytest.mark.parametrize("language", ["en", "es", "pt"])
def test_pairs_contradict_themselves_nowhere(language: str) -> None:
    pairs = list(Frames(language).pairs(400))
    same = {frozenset((left, right)) for left, right, label in pairs if label}
    other = {frozenset((left, right)) for left, right, label in pairs if not label}
    assert same
    assert not same & other


def test_one_seed_makes_the_same_pairs_and_another_others() -> None:
    assert list(Frames("en").pairs(5)) == list(Frames("en").pairs(5))
    assert list(Frames("en", 1).pairs(5)) != list(Frames("en", 2).pairs(5))


def test_each_question_has_several_wordings_with_room_for_thing_and_place() -> None:
    for own in OWN.values():
        for wordings in own["matters"]:
            assert len(set(wordings)) == len(wordings) > 2
            assert all(wording.format("<a>", "<b>").count("<") == 2 for wording in wordings)


def test_no_wording_is_of_two_matters() -> None:
    for own in OWN.values():
        for some, others in combinations(own["matters"], 2):
            assert not set(some) & set(others)
