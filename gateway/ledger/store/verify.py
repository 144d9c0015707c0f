"""Checks that the ledger was not altered, by following each hash chain from its first entry to its anchored head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Literal, NamedTuple

from sqlalchemy import Connection, func, or_, select

from gateway.ledger.rows import FIELDS
from gateway.ledger.store.anchor import Anchors
from gateway.ledger.store.chain import Head, Rollup, canonical, following, genesis, sums_hash
from gateway.ledger.store.chain_heads import outside_rows
from gateway.state.sql.tables import ledger, ledger_chains, ledger_rollups, ledger_sums

PAGE = 2000
"""Maximum number of entries that are in memory at a time."""
_ROW = [ledger.c[name] for name in FIELDS]
_ROLLUP = [ledger_rollups.c[name] for name in Rollup.__slots__]
SUMS = [column for column in ledger_sums.columns if column.name != "rollup"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The first error in a chain, or in rows that are in no chain."""

    chain: str
    seq: int | None
    row: str
    """Id of the first wrong row or roll-up; empty if an entry is missing."""
    what: str


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """The result of checking one chain. `entries`: number of the chain's entries. `removed`: number of entries whose
    rows were replaced by sums."""

    chain: str
    begun_at: float
    entries: int
    removed: int
    anchored: int | None
    """Number of the entry in this host's anchor file. None if another host has the anchor; then missing entries at the
    end of the chain may not be detected."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the whole verification. No finding means that the ledger was not altered."""

    chains: tuple[ChainCheck, ...]
    outside: int
    """Number of rows that are older than chains. Changes of these rows cannot be detected."""
    findings: tuple[Finding, ...]


class _Step(NamedTuple):
    """A step through a chain: one entry, or consecutive entries that were replaced by sums, with the hashes before and
    after. `first`, `seq`: numbers of the first and last entry."""

    what: Literal["row", "rollup", "removed"]
    first: int
    seq: int
    id: str
    hash: bytes
    entry: bytes = b""
    before: bytes = b""


def verify(connection: Connection, anchors: Anchors | None) -> Verdict:
    """Verify all chains. `connection`: a snapshot of the database that began after `anchors` were read.

    Memory use does not depend on the size of the ledger. Raises SQLAlchemyError.
    """
    heads = dict(anchors.heads) if anchors else {}
    walked, findings = [], list(_strangers(connection))
    begun = connection.execute(select(ledger_chains).order_by(ledger_chains.c.begun_at, ledger_chains.c.id)).all()
    for row in begun:
        start = Head(row.id, 0, genesis(row.id, row.begun_at, row.outside))
        end, left = Head(row.id, row.seq, bytes(row.hash)), anchors is not None and anchors.current != row.id
        one, found = _walk(connection, start, end, heads.pop(row.id, None), left=left)
        walked.append(ChainCheck(row.id, row.begun_at, *one))
        findings += found
    for lost in heads.values():
        if lost.seq:  # a chain with `seq` 0 may be missing: its first transaction may have failed
            findings.append(Finding(lost.chain, None, "", f"all of its {lost.seq} entries are missing"))
    there = connection.scalar(select(func.count()).select_from(ledger).where(ledger.c.chain == "")) or 0
    if begun and (extra := outside_rows(connection) - begun[-1].outside) > 0:
        findings.append(Finding("", None, "", f"{extra} rows in no chain were inserted after chains began"))
    elif begun and extra < 0:
        findings.append(Finding("", None, "", f"{-extra} rows older than chains are missing"))
    return Verdict(tuple(walked), there, tuple(findings))


def _strangers(connection: Connection) -> Iterator[Finding]:
    """Yield a finding for each kind of entry that belongs nowhere: rows and roll-ups of an unknown chain, and sums
    without a roll-up."""
    known = select(ledger_chains.c.id)
    table = ledger.c
    bad = or_(table.chain.not_in(known), table.chain_seq.is_(None))
    for row in connection.execute(select(table.id, table.chain).where(table.chain != "", bad).limit(1)):
        yield Finding(row.chain, None, row.id, "the row names a place in a chain that no writer gave it")
    stray = ledger_rollups.c.chain.not_in(known)
    for row in connection.execute(select(ledger_rollups.c.id, ledger_rollups.c.chain).where(stray).limit(1)):
        yield Finding(row.chain, None, row.id, "the roll-up is in a chain that no writer began")
    rollups = select(ledger_rollups.c.id)
    for name in connection.scalars(select(ledger_sums.c.rollup).where(ledger_sums.c.rollup.not_in(rollups)).limit(1)):
        yield Finding("", None, name, "sums were inserted that belong to no roll-up")


def _walk(
    connection: Connection, start: Head, end: Head, anchored: Head | None, *, left: bool
) -> tuple[tuple[int, int, int | None], list[Finding]]:
    """Follow one chain from `start` to `end`. Returns (entries, removed, anchored), as in `ChainCheck`, and a list with
    the first error or nothing. `left`: whether the writer has begun another chain since."""
    chain, at, removed = start.chain, start, 0
    for step in _steps(connection, chain):
        if step.first != at.seq + 1:
            return _wrong(at, removed, anchored, _gap(at, step))
        gone = step.what == "removed"
        if (step.before != at.hash) if gone else (following(at.hash, step.entry) != step.hash):
            what = "it was altered, inserted or moved, or the entry before it was"
            return _wrong(at, removed, anchored, Finding(chain, step.first, step.id, what))
        if step.what == "rollup" and (wrong := _wrong_sums(connection, chain, step)):
            return _wrong(at, removed, anchored, wrong)
        removed += step.seq - step.first + 1 if gone else 0
        at = Head(chain, step.seq, step.hash)
        if anchored is not None and at.seq == anchored.seq and at.hash != anchored.hash:
            what = "the chain was rewritten: its hash differs from the anchor's"
            return _wrong(at, removed, anchored, Finding(chain, at.seq, step.id, what))
    most = max(end.seq, anchored.seq if anchored else 0)
    if at.seq < most:
        what = f"entries {at.seq + 1} to {most} are missing at the end"
        return _wrong(at, removed, anchored, Finding(chain, at.seq + 1, "", what))
    if at != end:
        return _wrong(at, removed, anchored, Finding(chain, at.seq, "", "its head was altered in the database"))
    if left and anchored is not None and at.seq > anchored.seq:
        what = "it was appended after the chain's writer had left it"
        return _wrong(at, removed, anchored, Finding(chain, anchored.seq + 1, "", what))
    return (at.seq, removed, anchored.seq if anchored else None), []


def _wrong(
    at: Head, removed: int, anchored: Head | None, finding: Finding
) -> tuple[tuple[int, int, int | None], list[Finding]]:
    return (at.seq, removed, anchored.seq if anchored else None), [finding]


def _gap(at: Head, step: _Step) -> Finding:
    if step.first <= at.seq:
        return Finding(at.chain, step.first, step.id, "there are two entries in its place")
    missing = f"entry {at.seq + 1} is" if step.first == at.seq + 2 else f"entries {at.seq + 1} to {step.first - 1} are"
    return Finding(at.chain, at.seq + 1, step.id, f"{missing} missing before it")


def _steps(connection: Connection, chain: str) -> Iterator[_Step]:
    return merge(
        _rows(connection, chain),
        _rollups(connection, chain),
        _removed(connection, chain),
        key=lambda step: (step.first, step.seq),
    )


def _rows(connection: Connection, chain: str) -> Iterator[_Step]:
    seq, hash = ledger.c.chain_seq, ledger.c.chain_hash
    last, more = -(2**62), True
    while more:
        page = connection.execute(
            select(*_ROW, seq, hash).where(ledger.c.chain == chain, seq > last).order_by(seq).limit(PAGE)
        ).all()
        for row in page:
            last = row[-2]
            yield _Step("row", last, last, row[0], bytes(row[-1] or b""), canonical(tuple(row[:-2])))
        more = len(page) == PAGE


def _rollups(connection: Connection, chain: str) -> Iterator[_Step]:
    seq, hash = ledger_rollups.c.chain_seq, ledger_rollups.c.chain_hash
    last, more = -(2**62), True
    while more:
        page = connection.execute(
            select(*_ROLLUP, seq, hash).where(ledger_rollups.c.chain == chain, seq > last).order_by(seq).limit(PAGE)
        ).all()
        for row in page:
            last = row[-2]
            yield _Step("rollup", last, last, row[0], bytes(row[-1]), _rollup(row[:-2]).canonical())
        more = len(page) == PAGE


def _removed(connection: Connection, chain: str) -> Iterator[_Step]:
    """Yield the ranges of the chain's rows that were replaced by sums, no matter by which writer."""
    table, last, more = ledger_rollups.c, -(2**62), True
    while more:
        page = connection.execute(
            select(table.first_seq, table.last_seq, table.before_hash, table.after_hash, table.id)
            .where(table.of_chain == chain, table.first_seq > last)
            .order_by(table.first_seq)
            .limit(PAGE)
        ).all()
        for first, end, before, after, id in page:
            last = first
            yield _Step("removed", first, end, id, bytes(after), before=bytes(before))
        more = len(page) == PAGE


def _rollup(values: tuple[object, ...]) -> Rollup:
    return Rollup(*(bytes(value) if isinstance(value, memoryview) else value for value in values))  # type: ignore[arg-type]


def _wrong_sums(connection: Connection, chain: str, step: _Step) -> Finding | None:
    """A finding if the sums of a roll-up have changed since they were written; otherwise None."""
    table = ledger_rollups.c
    row = connection.execute(select(table.sums, table.sums_hash).where(table.id == step.id)).one()
    found = connection.execute(select(*SUMS).where(ledger_sums.c.rollup == step.id).order_by(ledger_sums.c.number))
    values = [tuple(one) for one in found]
    if len(values) == row.sums and sums_hash(values) == bytes(row.sums_hash):
        return None
    return Finding(chain, step.seq, step.id, "its sums were altered")
