"""The comparison of dialects: which cells there are, what they are divided by, and that one of them is measured."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from loadtests.dialect_upstream import BACKENDS, SHAPES
from loadtests.dialects import CLIENTS, Cell, Result, cells, main, table


def test_a_cell_is_divided_by_pass_through_of_its_clients_dialect() -> None:
    assert Cell("messages", "gemini", "burst").divisor == Cell("messages", "messages", "burst")
    assert Cell("ollama", "messages", "small").divisor == Cell("chat", "chat", "small")


def test_all_pairs_but_pass_through_are_compared() -> None:
    every = cells("*:*", SHAPES)
    assert len(every) == len(set(every)) == (len(CLIENTS) * len(BACKENDS) - 3) * len(SHAPES)
    assert cells("chat:messages,chat:chat", ["small"]) == [Cell("chat", "messages", "small")]


@pytest.mark.parametrize("pairs", ["chat", "chat:ollama", "chat:messages,x:chat"])
def test_an_unknown_pair_is_refused(pairs: str) -> None:
    with pytest.raises(ValueError, match="a pair is CLIENT:BACKEND"):
        cells(pairs, SHAPES)


def test_the_table_has_the_median_of_the_rounds() -> None:
    cell = Cell("chat", "messages", "burst")
    (head, line) = table([Result(cell, (30.0, 10.0, 90.0), (1.5, 1.2, 3.0))])
    assert head.split()[-1] == "burst"
    assert line.split("messages")[1].split() == ["30", "µs", "=", "1.50", "×"]


@pytest.mark.heavy
def test_a_pair_is_measured_in_every_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "dialects.json"
    words = ["--pairs", "converse:gemini", "--rounds", "1", "--requests", "1", "--most", "1e9", "--json", str(figures)]
    assert main(words) == 0
    assert "converse over gemini" in capsys.readouterr().out
    found = orjson.loads(figures.read_bytes())
    assert {(each["client"], each["shape"]) for each in found} == {
        (client, shape) for client in ("chat", "converse") for shape in SHAPES
    }
    assert all(cpu > 0 for each in found for cpu in each["cpu_us"])
