"""Reading recorded outcomes and pools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.routing.fit.evaluation import DataError
from gateway.routing.fit.outcomes import normalise, read_outcomes, read_pool
from tests.routing.recorded import outcomes, rows, write

TWO = {"cheap": (1.0, 2.0), "dear": (10.0, 20.0)}


def test_a_call_costs_its_length_at_list_price(tmp_path: Path) -> None:
    row = {"id": 1, "prompt": "x" * 400, "q": {"cheap": 1, "dear": 0}, "out_tok": {"cheap": 50, "dear": 10}}
    found = outcomes(tmp_path, [row], TWO)
    assert found.usd[0].tolist() == pytest.approx([(100 * 1 + 50 * 2) / 1e6, (100 * 10 + 10 * 20) / 1e6])
    assert found.ids == ("1",)


def test_a_model_that_a_row_does_not_know_cannot_be_called_there(tmp_path: Path) -> None:
    lines = [{"prompt": "a", "q": {"cheap": 1, "dear": None}}, {"prompt": "b", "q": {"dear": 1, "other": 1}}]
    assert np.isnan(outcomes(tmp_path, lines, TWO).quality).tolist() == [[False, True], [True, False]]


def test_a_row_without_any_model_of_the_pool_is_left_out(tmp_path: Path) -> None:
    assert len(outcomes(tmp_path, [{"prompt": "a", "q": {"other": 1}}, {"prompt": "b", "q": {"dear": 1}}], TWO)) == 1


@pytest.mark.parametrize(
    ("row", "pool"),
    [
        ({"prompt": "a", "w": 0, "s": 1, "out_tok": {"b": 1, "a": 2}}, {"a": (9.0, 9.0), "b": (1.0, 1.0)}),
        ({"prompt": "a", "w": 0, "s": 1}, {"a": (9.0, 9.0), "b": (1.0, 1.0)}),
    ],
)
def test_a_row_of_two_models_needs_no_names(tmp_path: Path, row: dict[str, Any], pool: Any) -> None:
    found = outcomes(tmp_path, [row], pool)
    assert dict(zip(found.models, found.quality[0].tolist(), strict=True)) == {"a": 1.0, "b": 0.0}


def test_a_given_cost_counts_where_no_length_is_known(tmp_path: Path) -> None:
    found = outcomes(tmp_path, [{"prompt": "a", "w": 0, "s": 1, "cw": 0.25, "cs": 0.5}], TWO)
    assert found.usd[0].tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rows.jsonl", r"rows\.jsonl:\d+: .*the file ends within this line"),
        ("rows.jsonl.gz", r"rows\.jsonl\.gz: .*cut off"),
    ],
)
def test_a_file_that_was_cut_in_half_is_named_with_what_to_do(tmp_path: Path, name: str, message: str) -> None:
    path = write(tmp_path / name, rows(100))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=message):
        read_outcomes([path], TWO)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1,234.50", "$1234.5"), (" B ", "b"), (3, "3.0"), ("New  York", "new york"), ({"a": 1}, {"a": 1})],
)
def test_equal_answers_are_equal_votes(one: Any, other: Any) -> None:
    assert normalise(one) == normalise(other) is not None


@pytest.mark.parametrize("answer", [None, "", "___"])
def test_nothing_said_is_no_vote(answer: Any) -> None:
    assert normalise(answer) is None


def test_labels_say_who_agrees(tmp_path: Path) -> None:
    row = {"prompt": "a", "q": {"x": 1, "y": 1, "z": 0}, "ans": {"x": "7", "y": "7.0", "z": None}}
    found = outcomes(tmp_path, [row], dict.fromkeys("xyz", (1.0, 1.0)))
    assert found.labels.tolist() == [[0, 0, -1]]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"q": {}}', '{"prompt": 1, "q": {"cheap": 1}}', '{"prompt": "a", "q": {"cheap": 2}}']
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.jsonl").write_text(f'{{"prompt": "a", "q": {{"cheap": 1}}}}\n{line}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:2: not an outcome"):
        read_outcomes([tmp_path / "bad.jsonl"], TWO)


def test_a_pool_that_fits_no_row_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="compare the names"):
        read_outcomes([write(tmp_path / "a.jsonl", rows(3))], TWO)


@pytest.mark.parametrize("text", ["[]", "{}", '{"a": 1}', '{"a": [1]}', '{"a": [1, -2]}', '{"a": ["x", 1]}', "{"])
def test_a_bad_pool_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "pool.json").write_text(text)
    with pytest.raises(DataError, match="one flat object"):
        read_pool(tmp_path / "pool.json")
