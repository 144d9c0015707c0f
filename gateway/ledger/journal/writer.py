"""Writes a worker's journal: one line before each attempt begins, and one line before the attempt's answer ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gateway.dialects.facts import FACTS
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.unpriced import unpriced_units
from gateway.domain.money.usage import Usage
from gateway.domain.protocols import Clock, PriceList
from gateway.domain.record import Attempt, Outcome, Record
from gateway.domain.routing.route import Decision
from gateway.errors import LedgerUnavailable
from gateway.ledger import rows
from gateway.ledger.journal import orphan, segments, slots
from gateway.ledger.journal.reader import MARK_S
from gateway.ledger.prices import upstream
from gateway.ledger.prices.applied import Terms
from gateway.runtime.tasks import Tasks
from gateway.runtime.write_batcher import WriteBatcher

log = logging.getLogger(__name__)

SEGMENT_BYTES = 16 * 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors after which the same file can be written again as soon as there is space. After any other error, the disk of
the file may be lost."""
CLOSE_S = 5.0


@dataclass(slots=True)
class _Open:
    attempt: Attempt
    opening: rows.Values
    terms: Terms | None
    slot: int | None
    usual: bool
    """Whether the columns in `rows.asked` have their defaults."""
    seen_bytes: int = 0
    reported: dict[str, int] | None = None
    """Token class → tokens that the backend had reported at the first mark. Later reports are not recorded, because
    backends that report before the end nearly always do so at the beginning."""


class Journal:
    """Implements `AttemptJournal`. For each attempt it writes a line before the call (the opened line), progress
    records, and a line at the end (the closed line).

    No line is lost if the process is killed. `open` raises if its line cannot be written. A closed line that cannot be
    written waits in memory.
    """

    def __init__(
        self,
        directory: Path,
        *,
        prices: PriceList,
        worker: str,
        leases_as: str = "",
        clock: Clock = time,
        mark_s: float = MARK_S,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """`leases_as`: the name under which the worker leases its budgets. `mark_s`: seconds between two progress
        records."""
        self._directory, self._prices, self._clock = directory, prices, clock
        self._mark_s, self._segment_bytes = mark_s, segment_bytes
        self._segment = segments.Segment.at(directory, segments.new_lane(worker, leases_as), 1)
        self._fd = -1
        self._size = self._flushed = 0
        self._torn = self._troubled = self._lost = False
        self._waiting: list[bytes] = []
        """Lines about ended attempts that are not written yet."""
        self._flush_soon: Callable[[], None] | None = None
        """Makes the event loop call `flush` at the end of this turn. None: each line about an ended attempt is written
        at once."""
        self._unflushed: list[bytes] = []
        """Lines that were written but may not be on disk yet. They are written again if the disk is lost."""
        self._slots: slots.Slots | None = None
        self._ended_slots: list[int] = []
        self._open: dict[str, _Open] = {}
        self._terms: dict[str, Terms] = {}
        """Backend name → its prices. An entry is replaced when the price list returns another object for the backend.
        """
        self._refused = ""
        self._closed = self._refusals = 0
        self._tasks = Tasks()
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Begin the first segment. Raises LedgerUnavailable if the directory cannot be written."""
        try:
            self._fd = await asyncio.to_thread(self._create, self._segment)
            self._slots = await asyncio.to_thread(slots.Slots, slots.path_of(self._directory, self._segment.lane))
        except OSError as error:
            raise _unavailable(error.strerror or str(error)) from error
        self._tasks.spawn(self._tick(), "journal marks")

    def _create(self, segment: segments.Segment) -> int:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return segments.create(segment, rows.FIELDS)

    async def aclose(self) -> None:
        """Write the waiting lines and unlock the last segment. The ledger's writer then treats this worker's journal as
        ended."""
        self._stopping.set()
        await self._tasks.drain(CLOSE_S)
        await self._tasks.aclose()
        if self._fd < 0:
            return
        if self._open:
            log.warning("%d attempts were still open; the ledger closes them as interrupted", len(self._open))
        if self._waiting and not self._append(b""):
            # The log may be on another disk. Then these costs are not lost.
            log.error("the ledger journal could not take %d lines: %r", len(self._waiting), b"".join(self._waiting))
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError):  # these lines are already in the log
            await asyncio.to_thread(segments.retire, fd)

    def write_before(self, outgoing: WriteBatcher) -> None:
        """From now on, collect the lines about ended attempts during one turn of the event loop, and write them
        together before `outgoing` sends data. An answer that does not go through `outgoing` must be preceded by a
        call of `flush`."""
        outgoing.before, self._flush_soon = self.flush, partial(outgoing.flush_soon, asyncio.get_running_loop())

    def flush(self) -> None:
        """Write the waiting lines about ended attempts to the journal. A disk error raises no exception."""
        if self._waiting:
            self._append(b"")

    def open(self, attempt: Attempt, record: Record) -> None:
        """Write to the journal that `attempt` will be called. If this raises LedgerUnavailable, the backend must not be
        called."""
        if self._slots is None or self._fd < 0:
            raise _unavailable("the journal is not open")
        terms, opening = self._terms_of(attempt.backend), rows.opening(attempt, record)
        slot = self._slots.take() if record.stream or FACTS[record.dialect].opaque else None
        more, traffic_class, most = rows.asked(attempt, record), record.traffic_class, attempt.most_output
        entry: dict[str, Any] = {"open": opening, "tokens": attempt.input_tokens, "slot": slot}
        if terms is not None:
            entry["source"], entry["prices"] = terms.source, terms.flat or terms.text(attempt.input_tokens)
            if record.of_gateway:
                attempt.price_text = entry["prices"]
        if more:
            entry["more"] = more
        if traffic_class:
            entry["class"] = traffic_class
        if most is not None:
            entry["cap"] = most
        if attempt.service_tier:
            usual = Usage(attempt.input_tokens, service_tier=attempt.service_tier)
            if terms is not None:
                entry["prices"], entry["source"] = terms.billed(usual)
            more["unpriced"] = unpriced_units(None if terms is None else terms.price, usual)
        if not self._append(segments.encode(entry)):
            if slot is not None:
                self._slots.give_back(slot)
            raise _unavailable(self._refused)
        if slot is not None:
            attempt.progress = self._slots.words(slot)
        self._open[attempt.id] = _Open(attempt, opening, terms, slot, not more)

    def _terms_of(self, backend: Backend) -> Terms | None:
        price = self._prices.price(backend)
        if price is None:
            return None
        terms = self._terms.get(backend.name)
        if terms is None or terms.price is not price:
            terms = self._terms[backend.name] = Terms(price)
        return terms

    def close(self, attempt: Attempt, record: Record) -> None:
        """Price the attempt and write its end to the journal. A disk error raises no exception. A second call does
        nothing."""
        opened = self._open.pop(attempt.id, None)
        if opened is None:
            return
        attempt.progress = None
        if attempt.outcome == "open":
            attempt.outcome = "interrupted"
        if attempt.ended_at is None:
            attempt.ended_at = self._clock.time()
        attempt.usage = usage = rows.usage_of(attempt)
        terms, prices, told = opened.terms, "", None
        if attempt.backend.facts.tells_cost:
            told, terms = upstream.told_in(attempt.headers, attempt.backend, terms)
        if usage.estimated and terms is not None and FACTS[record.dialect].opaque:
            attempt.usage = usage = _at_most(terms.price, usage, attempt)
        if terms is not None and (not usage.estimated or _countable(terms.price, usage, attempt, record)):
            cost = terms.price.cost(usage)
            attempt.cost_pico = cost if cost < rows.MOST_PICO else rows.MOST_PICO
            if usage.service_tier or not terms.flat:
                prices, attempt.price_source = terms.billed(usage)
            else:
                prices, attempt.price_source = terms.flat, terms.source
        if told is not None:
            attempt.cost_pico, attempt.price_source = min(told, rows.MOST_PICO), upstream.SOURCE
        if usage.billed_pico is not None and attempt.backend.facts.bills_in_usage:
            attempt.cost_pico, attempt.price_source = min(usage.billed_pico, rows.MOST_PICO), upstream.BILL
        elif usage.fees or usage.service_tier:  # a provider's bill includes them
            attempt.unpriced = unpriced_units(None if terms is None else terms.price, usage)
        decided = None
        if (route := record.route) is not None and route.decided is not None:
            decided = self._decided(attempt, route.decided, usage)
        ending = rows.ending(attempt, record, usage, prices, decided, usual=opened.usual)
        self._keep(opened.opening + ending, record, opened.slot)

    def _decided(self, attempt: Attempt, decision: Decision, usage: Usage) -> rows.Decided | None:
        """The choice that routing would have made, for an answer that came from another backend. This happens if the
        policy only observes, if the request is outside the rollout, or if the request serves for comparison. None if
        the answer is incomplete."""
        if attempt.outcome != "ok" or attempt.kind:
            return None
        cost: float | None = 0
        for backend, chance in decision.calls:
            price = self._prices.price(backend)
            cost = None if cost is None or price is None else cost + chance * price.cost(usage)
        names = ",".join(backend.name for backend, _ in decision.calls)[: rows.MOST_DECIDED]
        pico = None if cost is None else min(round(cost), rows.MOST_PICO)
        return rows.Decided(names, pico, round(decision.adequacy * 1e6))

    def cached(self, record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> None:
        """Write a row for an answer from the cache to the journal. `saved_pico`: the cost in pico-dollars that the
        answer would have had without the cache. A disk error raises no exception."""
        self._keep(rows.from_cache(record, usage, saved_pico, outcome), record, None)

    def _keep(self, values: rows.Values, record: Record, slot: int | None) -> None:
        """Write a line that ends an attempt to the journal. The line is written at the end of this turn of the event
        loop, or earlier. `slot`: number of the attempt's progress slot, which another attempt can use after that."""
        line = segments.encode({"close": values, "class": record.traffic_class})
        self._closed += 1
        if slot is not None:
            self._ended_slots.append(slot)
        if self._flush_soon is None and self._append(line):
            return
        self._waiting.append(line)
        if self._flush_soon is not None:
            self._flush_soon()

    def _append(self, line: bytes) -> bool:
        """Write all waiting lines and `line` together. Returns False if a part could not be written."""
        if self._waiting or self._torn:
            # An incomplete line gets a "~" before its newline, so that its checksum fails.
            line = b"".join((b"~\n" if self._torn else b"", *self._waiting, line))
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self._lost = error.errno not in _FULL
            return self._refuse(error.strerror or str(error))
        self._size += written
        if written != len(line):
            self._torn = True
            return self._refuse("the disk took only a part")
        self._unflushed.append(line)
        if self._refused or self._waiting or self._ended_slots:
            self._recovered()
        return True

    def _recovered(self) -> None:
        """Reset the error state, after all waiting lines could be written to the disk again."""
        if self._refused:
            log.info("the ledger journal is written again")
        self._refused, self._torn = "", False
        self._waiting.clear()
        while self._ended_slots and self._slots is not None:
            self._slots.give_back(self._ended_slots.pop())

    def _refuse(self, reason: str) -> bool:
        self._refusals += 1
        if reason != self._refused:
            log.error("the ledger journal cannot be written (%s); no backend is called until it can", reason)
        self._refused = reason
        return False

    async def _tick(self) -> None:
        while not await self._stopped(self._mark_s):
            self._mark()
            try:
                self._lost = self._lost or not await asyncio.to_thread(self._flush)
                if self._lost or self._size > self._segment_bytes:
                    await self._roll()
            except OSError as error:
                self._lost = error.errno not in _FULL
                if not self._troubled:
                    log.error("the ledger journal cannot be flushed or continued: %s", error)
                self._troubled = True
            else:
                self._troubled = False

    async def _stopped(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    def _mark(self) -> None:
        """Write a progress record. It contains the progress of all open attempts that received data, and the speeds of
        their backends."""
        if not self._open:
            self.flush()
            return
        grown = [opened for opened in self._open.values() if opened.attempt.output_bytes != opened.seen_bytes]
        marks = [(o.attempt.id, o.attempt.chunks, o.attempt.output_bytes) for o in grown]
        entry = {
            "mark": self._clock.time(),
            "grown": marks,
            "paces": {name: tuple(known) for name, known in self._paces().items()},
        }
        if reported := {o.attempt.id: classes for o in grown if (classes := _newly_reported(o))}:
            entry["reported"] = reported
        if self._append(segments.encode(entry)):
            for opened in grown:
                opened.seen_bytes = opened.attempt.output_bytes

    def _paces(self) -> dict[str, orphan.BackendPace]:
        """The speeds of the backends that open attempts call: backend name → speed. There may be thousands of open
        attempts, but they call few backends."""
        found: dict[str, orphan.BackendPace] = {}
        different: dict[int, Attempt] = {}
        for opened in self._open.values():
            attempt = opened.attempt
            attempt.look_at_pace()
            different[id(attempt.pace)] = attempt
        for attempt in different.values():
            backend, pace = attempt.backend, attempt.pace
            if pace is None:
                continue
            known = found.get(backend.name) or orphan.BackendPace(0.0, 0.0, pace.frame_bytes, backend.max_output_tokens)
            if pace.plain:
                found[backend.name] = known._replace(plain=pace.most_per_second)
            else:
                found[backend.name] = known._replace(hidden=pace.most_per_second, frame_bytes=pace.frame_bytes)
        return found

    def _flush(self) -> bool:
        """Flush the segment to disk. Returns False if the file is no longer in the journal's folder, where the ledger's
        writer would find it."""
        if self._size != self._flushed:
            size, written = self._size, len(self._unflushed)
            os.fdatasync(self._fd)
            self._flushed = size
            del self._unflushed[:written]
        try:
            return os.path.samestat(os.fstat(self._fd), self._segment.path.stat())
        except FileNotFoundError:
            return False

    async def _roll(self) -> None:
        """Begin a new segment. The ledger's writer deletes the previous segment when the ledger has all its rows."""
        following = segments.Segment.at(self._directory, self._segment.lane, self._segment.number + 1)
        self._segment, fd = following, await asyncio.to_thread(self._create, following)
        old, self._fd, self._size, self._flushed, self._torn = self._fd, fd, 0, 0, False
        written, self._unflushed = self._unflushed, []
        lost, self._lost = self._lost, False
        if lost:  # before any new line is written, because these lines exist in memory only
            self._write_again(written)
        try:
            await asyncio.to_thread(segments.retire, old)
        except OSError:
            if not lost:
                self._write_again(written)

    def _write_again(self, lines: list[bytes]) -> None:
        """Write `lines` again, because the previous disk may have lost them. A row that is written twice counts
        once."""
        self._waiting[:0] = lines
        self._append(b"")

    def stats(self) -> dict[str, int | float | str]:
        return {
            "open": len(self._open),
            "closed": self._closed,
            "waiting": len(self._waiting),
            "refusals": self._refusals,
            "segment": self._segment.number,
            "segment_bytes": self._size,
        }


def _newly_reported(opened: _Open) -> dict[str, int]:
    """The tokens that the backend has reported so far for an open attempt, by token class. Returns them only once for
    an attempt; later calls return an empty dictionary."""
    if opened.reported is not None:
        return {}
    try:
        usage = opened.attempt.reported
        opened.reported = {} if usage is None else orphan.classes_of(usage)
    except Exception:  # a backend's invalid report must not stop the marks
        log.exception("what attempt %s reported could not be read", opened.attempt.id)
        opened.reported = {}
    return opened.reported


def _unavailable(reason: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"Spend cannot be recorded ({reason}), so no backend is called; free disk space in the data directory.",
        retry_after_s=5.0,
    )


def _at_most(price: Price, usage: Usage, attempt: Attempt) -> Usage:
    """The usage for which the attempt is charged. If the backend did not report its usage and output has a price, the
    largest possible output is assumed."""
    missing = (attempt.most_output or 0) - usage.all_output
    if price.every_tier or not usage.total or missing <= 0:
        return usage
    if price.image is not None:
        return replace(usage, image_tokens=usage.image_tokens + missing)
    if price.audio is not None:
        return replace(usage, audio_tokens=usage.audio_tokens + missing)
    return replace(usage, output_tokens=usage.output_tokens + missing)


def _countable(price: Price, usage: Usage, attempt: Attempt, record: Record) -> bool:
    """Return whether an estimated usage can be priced. Sound and images cannot be priced if the number of output tokens
    is unknown and the output has no limit."""
    unbounded = FACTS[record.dialect].opaque and usage.total > 0 and attempt.most_output is None
    return not unbounded or price.every_tier or not (price.output or price.audio or price.image)
