"""Flight records: the decisions in each request and the reasons for them. A record is kept for an hour. Only the team
of the request's key can read it."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Any

import orjson

from gateway.domain.protocols import Archive
from gateway.domain.record import Attempt, Record
from gateway.domain.units import usd_text
from gateway.errors import StateUnavailable
from gateway.state.redis import bundle
from gateway.state.redis.connection import State

KEEP_S = 3600
FLUSH_S = 0.25
RECENT = 512
MOST = 16
"""Maximum records stored in one flush. If more are waiting, requests with errors, retries or other events are stored
first."""
A_SECOND = 12
"""Maximum records stored per second, averaged over a long time. An hour of them takes about 25 MiB on the state
server."""
AT_ONCE = 1024
"""Maximum number of records that can be stored at once after a quiet time. Later records are stored at the rate
`A_SECOND`."""
FEW = 2
"""Maximum records in a flush for which the what-if analysis is made. The analysis takes a millisecond per record."""
_SLOT = slice(0, 13)
"""The part of a request's id that stands for its time slot of four seconds. The records of one slot are stored
together."""


class FlightRecords:
    """Keeps recent records in memory. Records with facts that the ledger lacks are also written to the state server."""

    def __init__(self, state: State, archive: Archive | None = None) -> None:
        """`archive`: finds requests whose records are neither in memory nor on the state server."""
        self._state, self._archive = state, archive
        self._recent: OrderedDict[str, Record] = OrderedDict()
        self._decided: list[Record] = []
        self._eventful: list[Record] = []
        self._allowance = float(AT_ONCE)
        self.dropped = 0
        """Number of records that were not written to the state server, because too many were waiting. Other workers
        find only the ledger's facts about these requests."""

    def add(self, record: Record) -> None:
        recent = self._recent
        recent[record.request_id] = record
        if len(recent) > RECENT:
            recent.popitem(last=False)
        if len(record.attempts) > 1 or record.error or record.degraded or record.escalated or record.trimmed_tokens:
            waiting = self._eventful
        elif _decided(record):
            waiting = self._decided
        else:
            return
        if len(waiting) < MOST:
            waiting.append(record)
        else:
            self.dropped += 1

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        """The flight record of a request as JSON values; None if the team has made no such request."""
        record = self._recent.get(request_id)
        if record is not None:
            return flight(record) if record.tenant.team == team else None
        found = await self._stored(request_id, team)
        if found is None and self._archive is not None:
            found = await self._archive.find(request_id, team)
        return found

    async def _stored(self, request_id: str, team: str) -> dict[str, Any] | None:
        try:
            stored = await bundle.get(self._state, self._key(request_id), _field(request_id, team))
        except StateUnavailable:
            return None
        if stored is None:
            return None
        found: dict[str, Any] = orjson.loads(zlib.decompress(stored))
        return found

    async def flush(self) -> None:
        """Write the waiting records to the state server. If the state server is unavailable, the records are lost; they
        are not essential."""
        self._allowance = min(self._allowance + A_SECOND * FLUSH_S, AT_ONCE)
        batch = [*self._eventful, *self._decided][: min(MOST, int(self._allowance))]
        self._allowance -= len(batch)
        self.dropped += len(self._eventful) + len(self._decided) - len(batch)
        self._eventful, self._decided = [], []
        slots: dict[str, list[tuple[str | bytes, bytes]]] = {}
        for record in batch if self._state.healthy else ():
            field = _field(record.request_id, record.tenant.team)
            values = flight(record, what_if=len(batch) <= FEW)
            # about half the size, and the record is kept for an hour
            compressed = zlib.compress(orjson.dumps(values, default=str))
            slots.setdefault(self._key(record.request_id), []).append((field, compressed))
        try:
            for key, fields in slots.items():
                await bundle.put(self._state, key, fields, KEEP_S)
        except StateUnavailable:
            return

    def _key(self, request_id: str) -> str:
        return self._state.key("flight", request_id[_SLOT])


def _decided(record: Record) -> bool:
    """Whether the gateway had a choice: between backends, or a semantic hit. The ledger lacks the reasons for a
    choice."""
    if (route := record.route) is not None and (route.grade is not None or len(route.considered) > 1):
        return True
    # a budget may have cut the answer off
    return record.cache == "semantic" or (record.finish == "length" and bool(record.notes))


def _field(request_id: str, team: str) -> str:
    return f"{request_id}/{team}"


def flight(record: Record, *, what_if: bool = True) -> dict[str, Any]:
    """The record of a request as JSON values, without prompt, answer or secret. The names of the fields are the same
    as in a record from the ledger's `Archive`.

    `what_if`: whether to add which changes of the request or policy would change the decision.
    """
    route = record.route
    return {
        "id": record.request_id,
        "team": record.tenant.team,
        "key": record.tenant.key.lineage,
        "at": record.started_at,
        "model": record.model,
        "dialect": record.dialect,
        "stream": record.stream,
        "status": record.status,
        "error": record.error or None,
        "finish": record.finish or None,
        "cache": record.cache,
        "cache_score": record.cache_score,
        "difficulty": record.difficulty,
        "abstained": bool(route and route.grade and route.grade.abstained),
        "route": None
        if route is None
        else {
            "reason": route.reason,
            "order": [backend.name for backend in route.backends],
            "reference": route.reference.name if route.reference else None,
            "escalate_to": route.escalate_to.name if route.escalate_to else None,
            "observed": route.observed.name if route.observed else None,
            "quality": route.quality,
            "pressure": route.pressure,
            "strategy": route.strategy or None,
            "ceiling_usd": _usd(route.ceiling_pico),
            "what_if": list(route.what_if()) if what_if and route.what_if is not None else None,
            "considered": [
                {
                    "backend": one.backend,
                    "excluded": one.excluded or None,
                    "adequacy": one.adequacy,
                    "cost_usd": _usd(one.cost_pico),
                }
                for one in route.considered
            ],
        },
        "attempts": [_attempt(attempt) for attempt in record.attempts],
        "escalated": record.escalated,
        "trimmed_tokens": record.trimmed_tokens,
        "cost_usd": _usd(record.cost_pico),
        "saved_usd": _usd(record.saved_pico),
        "first_byte_ms": record.first_byte_ms,
        "duration_ms": record.duration_ms,
        "degraded": sorted(record.degraded),
        "tags": record.tags,
        "session": record.session or None,
        "agent": record.agent or None,
        "class": record.traffic_class or None,
        "notes": record.notes,
        "source": "recorder",
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    usage = attempt.usage
    return {
        "id": attempt.id,
        "backend": attempt.backend.name,
        "model": attempt.backend.model,
        "tier": attempt.backend.tier,
        "kind": attempt.kind or None,
        "outcome": attempt.outcome,
        "status": attempt.status,
        "error": attempt.error or None,
        "input_tokens": usage.all_input if usage else attempt.input_tokens,
        "cached_tokens": usage.cached_tokens if usage else 0,
        "output_tokens": usage.all_output if usage else 0,
        "estimated": bool(usage and usage.estimated),
        "confidence": attempt.confidence,
        "cost_usd": _usd(attempt.cost_pico),
        "service_tier": (usage.service_tier if usage else attempt.service_tier) or None,
        "unpriced": attempt.unpriced or None,
        "doubt": (usage.doubt if usage else "") or None,
        "trimmed_tokens": attempt.trimmed_tokens,
        "above_ceiling": attempt.above_ceiling,
    }


def _usd(pico: int | None) -> str | None:
    """`pico` pico-dollars as exact text in USD. A number in JSON would be rounded."""
    return None if pico is None else usd_text(pico)
