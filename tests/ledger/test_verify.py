"""Whatever is done to the ledger behind its writer's back is found, and the first bad row named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update

from gateway.ledger.rows import FIELDS
from gateway.ledger.store import anchor
from gateway.ledger.store.chain import Head, linked
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import Verdict, verify
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_chains
from tests.ledger.samples import row, write

COUNT = 20
OTHER: dict[type, Any] = {str: "x", int: 77, float: 7.5, bool: True}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def verdict(directory: Path, database: Database) -> Verdict:
    anchors = anchor.read(anchor.beside(directory))
    with snapshot(database) as connection:
        return verify(connection, anchors)


@pytest.fixture
def written(any_database: Database, directory: Path) -> Database:
    """A ledger with one chain of COUNT rows."""
    write(directory, any_database, [row(f"req_{number:02}", at=1000.5 + number) for number in range(COUNT)])
    assert verdict(directory, any_database).findings == ()
    return any_database


def change(database: Database, *statements: Any) -> None:
    with database.begin() as connection:
        for statement in statements:
            connection.execute(text(statement) if isinstance(statement, str) else statement)


def test_an_edit_of_any_column_is_found(written: Database, directory: Path) -> None:
    with written.read() as connection:
        before = connection.execute(select(ledger).where(ledger.c.chain_seq == 7)).mappings().one()
    for name in FIELDS:
        kind: type = ledger.c[name].type.python_type
        other = OTHER[kind] if before[name] != OTHER[kind] else False
        change(written, update(ledger).where(ledger.c.chain_seq == 7).values({name: other}))
        (found,) = verdict(directory, written).findings
        assert (found.seq, found.row) == (7, other if name == "id" else "req_06-1"), name
        assert "altered" in found.what
        change(written, update(ledger).where(ledger.c.chain_seq == 7).values({name: before[name]}))
    assert verdict(directory, written).findings == ()


@pytest.mark.parametrize("name", ["chain", "chain_seq", "chain_hash"])
def test_so_is_one_of_the_chain_itself(written: Database, directory: Path, name: str) -> None:
    other = {"chain": "ffff", "chain_seq": 900, "chain_hash": b"x" * 32}[name]
    change(written, update(ledger).where(ledger.c.chain_seq == 7).values({name: other}))
    assert verdict(directory, written).findings


def renumbered(database: Database, directory: Path) -> None:
    """Row 5 is gone and those after it have moved up, each with its own hash."""
    del directory
    change(
        database,
        delete(ledger).where(ledger.c.chain_seq == 5),
        "UPDATE ledger SET chain_seq = -chain_seq WHERE chain_seq > 5",
        "UPDATE ledger SET chain_seq = -chain_seq - 1 WHERE chain_seq < 0",
    )


def swapped(database: Database, directory: Path) -> None:
    del directory
    change(
        database,
        "UPDATE ledger SET chain_seq = -1 WHERE chain_seq = 5",
        "UPDATE ledger SET chain_seq = 5 WHERE chain_seq = 6",
        "UPDATE ledger SET chain_seq = 6 WHERE chain_seq = -1",
    )


def inserted(database: Database, directory: Path) -> None:
    """A row more, and room made for it."""
    del directory
    forged = row("req_forged", at=1000.5)._asdict()
    change(
        database,
        "UPDATE ledger SET chain_seq = -chain_seq WHERE chain_seq >= 5",
        "UPDATE ledger SET chain_seq = -chain_seq + 1 WHERE chain_seq < 0",
        insert(ledger).from_select(
            [*FIELDS, "chain", "chain_seq", "chain_hash"],
            select(
                *(text(repr_of(forged[name])) for name in FIELDS), ledger.c.chain, text("5"), ledger.c.chain_hash
            ).where(ledger.c.chain_seq == 4),
        ),
    )


def repr_of(value: Any) -> str:
    return "NULL" if value is None else str(value) if isinstance(value, int | float) else f"'{value}'"


@pytest.mark.parametrize(
    ("tamper", "row_id"), [(renumbered, "req_05-1"), (swapped, "req_05-1"), (inserted, "req_forged-1")]
)
def test_rows_taken_out_moved_or_put_in_are_found(
    written: Database, directory: Path, tamper: Callable[[Database, Path], None], row_id: str
) -> None:
    tamper(written, directory)
    (found,) = verdict(directory, written).findings
    assert (found.seq, found.row) == (5, row_id)


def test_a_deleted_row_is_missed(written: Database, directory: Path) -> None:
    change(written, delete(ledger).where(ledger.c.chain_seq == 5))
    (found,) = verdict(directory, written).findings
    assert (found.seq, found.row, found.what) == (5, "req_05-1", "entry 5 is missing before it")


def cut(database: Database, last: int) -> None:
    """The end is gone, and the database's own head says that it never was."""
    with database.begin() as connection:
        connection.execute(delete(ledger).where(ledger.c.chain_seq > last))
        hash = connection.scalar(select(ledger.c.chain_hash).where(ledger.c.chain_seq == last))
        connection.execute(update(ledger_chains).values(seq=last, hash=hash))


def test_a_cut_at_the_end_is_seen_by_the_anchor(written: Database, directory: Path) -> None:
    cut(written, 15)
    (found,) = verdict(directory, written).findings
    assert (found.seq, found.what) == (16, "entries 16 to 20 are missing at the end")


def test_a_writer_does_not_paper_over_a_cut(
    written: Database, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut(written, 15)
    write(directory, written, [row("req_new")])
    found = verdict(directory, written)
    assert [one.what for one in found.findings] == ["entries 16 to 20 are missing at the end"]
    assert [chain.entries for chain in found.chains] == [15, 1]
    assert "lacks entry 20" in caplog.text


def test_a_chain_written_anew_does_not_meet_its_anchor(written: Database, directory: Path) -> None:
    with written.begin() as connection:
        rows = connection.execute(select(ledger).order_by(ledger.c.chain_seq)).mappings().all()
        values = [tuple(1 if n == "cost_pico" and one["chain_seq"] == 7 else one[n] for n in FIELDS) for one in rows]
        first = connection.execute(select(ledger_chains)).one()
        before = Head(first.id, 6, bytes(rows[5]["chain_hash"]))
        chained, head = linked(before, values[6:])
        for one in chained:
            changed = {"chain_hash": one[-1], "cost_pico": one[FIELDS.index("cost_pico")]}
            connection.execute(update(ledger).where(ledger.c.chain_seq == one[-2]).values(changed))
        connection.execute(update(ledger_chains).values(hash=head.hash))
    (found,) = verdict(directory, written).findings
    assert (found.seq, "rewritten" in found.what) == (COUNT, True)


def test_rows_outside_of_any_chain_are_counted(any_database: Database, directory: Path) -> None:
    old = [row(f"req_old{number}")._asdict() for number in range(3)]
    with any_database.begin() as connection:
        connection.execute(insert(ledger), old)
    write(directory, any_database, [row("req_new")])
    found = verdict(directory, any_database)
    assert (found.outside, found.findings) == (3, ())
    with any_database.begin() as connection:
        connection.execute(insert(ledger), [row("req_forged")._asdict()])
    (extra,) = verdict(directory, any_database).findings
    assert "1 rows in no chain were inserted" in extra.what
    change(any_database, "DELETE FROM ledger WHERE chain = '' AND id <> 'req_old0-1'")
    (missing,) = verdict(directory, any_database).findings
    assert "2 rows older than chains are missing" in missing.what


def test_two_hosts_have_a_chain_each(any_database: Database, tmp_path: Path) -> None:
    for host in ("one", "two"):
        for times in range(2):
            write(tmp_path / host / "journal", any_database, [row(f"req_{host}{times}")])
    found = verdict(tmp_path / "one" / "journal", any_database)
    assert found.findings == ()
    assert [(chain.entries, chain.anchored) for chain in found.chains] == [(2, 2), (2, None)]


def test_a_whole_ledger_that_is_gone_is_missed(written: Database, directory: Path) -> None:
    change(written, delete(ledger), delete(ledger_chains))
    (found,) = verdict(directory, written).findings
    assert "all of its 20 entries are missing" in found.what


def test_what_is_appended_behind_the_writer_ends_its_chain(written: Database, directory: Path) -> None:
    write(directory, written, [row("req_20")])
    with written.begin() as connection:
        chain = connection.execute(select(ledger_chains)).one()
        forged = row("req_forged")
        (one,), _ = linked(Head(chain.id, chain.seq, bytes(chain.hash)), [tuple(forged)])
        values = {**forged._asdict(), "chain": chain.id, "chain_seq": one[-2], "chain_hash": one[-1]}
        connection.execute(insert(ledger).values(values))
    write(directory, written, [row("req_21")])  # its place is taken
    found = verdict(directory, written)
    assert [chain.entries for chain in found.chains] == [22, 1]
    assert ["left" in one.what or "head was altered" in one.what for one in found.findings] == [True]


def test_a_page_after_another(written: Database, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.store.verify.PAGE", 3)
    found = verdict(directory, written)
    assert [chain.entries for chain in found.chains] == [COUNT]
    assert found.findings == ()
