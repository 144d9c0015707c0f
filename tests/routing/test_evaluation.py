from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import orjson
import pytest

from gateway.cli import tables
from gateway.cli.quality.router_tables import of_sets
from gateway.routing.difficulty.grader import Grader
from gateway.routing.fit.evaluation import DataError, SetReport, apgr, apgr_interval, evaluate, read_outcomes
from tests.routing.conftest import EASY, HARD, SPANISH

WEAK, STRONG = np.array([0.0, 0.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, 1.0])


def test_the_best_order_wins_all_the_worst_loses_and_none_is_half() -> None:
    assert apgr(np.array([4.0, 3.0, 2.0, 1.0]), WEAK, STRONG) == pytest.approx(0.75)
    assert apgr(np.array([1.0, 2.0, 3.0, 4.0]), WEAK, STRONG) == pytest.approx(0.25)
    assert apgr(np.zeros(4), WEAK, STRONG) == pytest.approx(0.5)


def test_equal_scores_share_their_place() -> None:
    tied = np.array([2.0, 1.0, 2.0, 1.0])
    assert apgr(tied, WEAK, STRONG) == pytest.approx(apgr(tied[::-1], WEAK[::-1], STRONG[::-1])) == pytest.approx(0.5)


def test_without_a_gain_there_is_no_figure() -> None:
    assert np.isnan(apgr(np.zeros(2), np.ones(2), np.ones(2)))
    assert np.isnan(apgr(np.zeros(0), np.zeros(0), np.zeros(0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(apgr_interval(np.zeros(2), np.ones(2), np.ones(2))).all()
    shown = of_sets([SetReport("flat", 2, 1.0, 1.0, np.nan, np.nan, np.nan, 0.0)])
    console = tables.Output(width=80)
    with console.capture() as captured:
        console.print(shown)
    assert "nan" not in captured.get()


def test_the_interval_surrounds_the_figure_and_repeats_with_its_seed() -> None:
    chance = np.random.default_rng(3)
    scores = chance.random(300)
    weak = (chance.random(300) > scores).astype(float)
    low, high = apgr_interval(scores, weak, np.ones(300))
    assert low < apgr(scores, weak, np.ones(300)) < high
    assert (low, high) == apgr_interval(scores, weak, np.ones(300))


def _rows() -> list[dict[str, object]]:
    return [
        {"prompt": EASY, "w": 1, "s": 1, "q": {"middle": 1, "other": None}},
        {"prompt": HARD, "w": 0, "s": 1},
        {"prompt": SPANISH, "w": 0.5, "s": 1, "dataset": "elsewhere"},
    ]


def test_files_are_read_plain_and_compressed(tmp_path: Path) -> None:
    lines = b"\n".join(orjson.dumps(row) for row in _rows()) + b"\n\n"
    (tmp_path / "plain.dev.jsonl").write_bytes(lines)
    (tmp_path / "small.jsonl.gz").write_bytes(gzip.compress(lines))
    plain, packed = (list(read_outcomes(tmp_path / name)) for name in ("plain.dev.jsonl", "small.jsonl.gz"))
    assert [each.group for each in plain] == ["plain", "plain", "elsewhere"]
    assert [each.group for each in packed] == ["small", "small", "elsewhere"]
    assert plain[0].qualities == {"middle": 1.0}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"{}", "prompt is missing"),
        (b"[1]", "list indices"),
        (b'{"prompt": 3, "w": 0, "s": 1}', "prompt must be text"),
        (b'{"prompt": "x", "w": "?", "s": 1}', "could not convert"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_a_reason(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"prompt": "x", "w": 0, "s": 1}\n' + line)
    with pytest.raises(DataError, match=rf"bad\.jsonl:2: not an outcome \({why}"):
        list(read_outcomes(path))


def test_every_set_is_reported(tmp_path: Path, grader: Grader) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in _rows()))
    mine, elsewhere = evaluate([path], grader)
    assert (mine.name, mine.prompts, mine.weak, mine.strong, mine.abstained) == ("mine", 2, 0.5, 1.0, 0.0)
    assert mine.apgr == pytest.approx(0.75)
    assert (elsewhere.name, elsewhere.abstained) == ("elsewhere", 1.0)
    console = tables.Output(width=80)
    with console.capture() as captured:
        console.print(of_sets([mine, elsewhere]))
    head, first, second = captured.get().splitlines()
    assert "APGR" in head
    assert "0.750" in first
    assert "100.0%" in second
