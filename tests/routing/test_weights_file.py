from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gateway.routing.difficulty.features import extract
from gateway.routing.difficulty.grader import Grader
from gateway.routing.difficulty.weights_file import ArtefactError, load, save
from tests.routing.conftest import EASY, HARD


def test_an_artefact_comes_back_as_it_was_saved(grader: Grader, tmp_path: Path) -> None:
    save(grader.artefact, tmp_path / "copy.npz")
    copy = Grader.load(tmp_path / "copy.npz")
    assert [copy.grade(text) for text in (EASY, HARD)] == [grader.grade(text) for text in (EASY, HARD)]
    assert copy.artefact.provenance == grader.artefact.provenance
    assert list(tmp_path.iterdir()) == [tmp_path / "copy.npz"]


def test_weights_stay_in_one_byte_each(grader: Grader) -> None:
    """All weights as floats would take 5 MiB more in each worker."""
    scorer = grader.artefact.scorer
    assert scorer.weights.dtype == np.int8
    floats = replace(scorer, weights=scorer.weights * scorer.unit, unit=np.ones(1, np.float32))
    for text in (EASY, HARD):
        assert floats.score(extract(text)) == scorer.score(extract(text))


def test_it_is_read_without_running_code_from_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", weights=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(ArtefactError, match="not a router artefact"):
        load(tmp_path / "objects.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"no archive at all"])
def test_another_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.npz").write_bytes(content)
    with pytest.raises(ArtefactError, match=r"other\.npz"):
        load(tmp_path / "other.npz")


def test_an_artefact_of_another_format_asks_for_a_new_fit(grader: Grader, tmp_path: Path) -> None:
    scorer = grader.artefact.scorer
    narrow = replace(scorer, weights=scorer.weights[:1024])
    save(replace(grader.artefact, scorer=narrow), tmp_path / "narrow.npz")
    with pytest.raises(ArtefactError, match="fit it anew"):
        load(tmp_path / "narrow.npz")
    words = replace(grader.artefact.support, vocabulary=np.zeros(8, np.uint8))
    save(replace(grader.artefact, support=words), tmp_path / "words.npz")
    with pytest.raises(ArtefactError, match="vocabulary"):
        load(tmp_path / "words.npz")
    gates = replace(scorer, gates=scorer.gates[:1], gate_intercepts=scorer.gate_intercepts[:1])
    save(replace(grader.artefact, scorer=gates), tmp_path / "gates.npz")
    with pytest.raises(ArtefactError, match="experts and gates"):
        load(tmp_path / "gates.npz")
