"""What is hashed of a row, and that it stays the same from the journal to the database and back."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ledger.rows import FIELDS, LEAST, Row
from gateway.ledger.store.chain import Head, canonical, following, genesis, linked, sums_hash
from tests.ledger.samples import row


def test_defaults_at_the_end_do_not_matter() -> None:
    whole = tuple(row("req_1"))
    assert canonical(whole) == canonical(whole[:LEAST])
    assert canonical(whole) != canonical(tuple(row("req_1", stream=True)))


def test_a_whole_number_in_a_column_of_fractions_is_a_fraction() -> None:
    assert canonical(tuple(row("req_1", at=1000))) == canonical(tuple(row("req_1", at=1000.0)))
    assert canonical(tuple(row("req_1", difficulty=1))) == canonical(tuple(row("req_1", difficulty=1.0)))


@given(st.sampled_from(FIELDS), st.data())
def test_no_two_rows_have_the_same_bytes(name: str, data: st.DataObject) -> None:
    before = row("req_1")
    value: Any = getattr(before, name)
    kinds = {str: st.text(max_size=5), bool: st.booleans(), int: st.integers(0, 9), float: st.floats(0, 9)}
    changed = data.draw(kinds.get(type(value), st.floats(0, 9)).filter(lambda new: new != value))
    assert canonical(tuple(before)) != canonical(tuple(before._replace(**one(name, changed))))


def one(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def test_each_hash_takes_in_the_one_before() -> None:
    rows = [tuple(row(f"req_{number}")) for number in range(3)]
    start = Head("c", 7, genesis("c", 1.0, 0))
    chained, head = linked(start, rows)
    assert [one[-2] for one in chained] == [8, 9, 10]
    expected = start.hash
    for one in rows:
        expected = hashlib.sha256(expected + canonical(one)).digest()
    assert head == Head("c", 10, expected)
    assert chained[-1][-1] == expected
    assert linked(start, rows[1:])[1].hash != expected


@pytest.mark.parametrize("other", [("d", 1.0, 0), ("c", 2.0, 0), ("c", 1.0, 1)])
def test_the_beginning_depends_on_all_that_is_known_of_it(other: tuple[str, float, int]) -> None:
    assert genesis("c", 1.0, 0) != genesis(*other)
    assert following(genesis("c", 1.0, 0), b"x") != following(genesis(*other), b"x")


def test_what_a_later_version_adds_changes_no_hash_of_today() -> None:
    older = tuple(Row.of(tuple(row("req_1"))[:LEAST]))
    assert canonical(older) == canonical(older[:LEAST])
    # Written down: who moves or renames columns makes every ledger's chain look altered.
    assert hashlib.sha256(canonical(tuple(row("req_1", tags='{"a":"b"}', difficulty=0.5)))).hexdigest()[:16] == (
        "cf33bea1d77255b6"
    )


def test_sums_that_were_written_before_they_had_later_columns_keep_their_hash() -> None:
    earlier = [(0, 1.0, "r", None), (1, 2.0, "s", 7)]
    decided = [(*one, "small", 5, 900_000) for one in earlier]

    def as_written(sums: list[tuple[object, ...]]) -> bytes:
        return hashlib.sha256(b"".join(orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE) for one in sums)).digest()

    before, later = as_written([*earlier]), as_written([*decided])
    assert sums_hash([(*one, "", None, 0, "", "", "", "") for one in earlier]) == before
    assert sums_hash([(*one, "", "", "", "") for one in decided]) == later
    assert sums_hash([(*one, "", None, 0, "priority", "", "", "") for one in earlier]) != before
    assert sums_hash([(*one, "", "web_search:1", "", "") for one in decided]) != later
    assert sums_hash([(*one, "", "", "codex", "") for one in decided]) != later
