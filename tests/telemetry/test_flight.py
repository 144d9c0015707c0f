"""The flight record: for its own team, from any worker, and without what nobody should see."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.domain.record import Record
from gateway.domain.routing.route import Considered, Grade, Route
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from gateway.telemetry.flight import KEEP_S, MOST, RECENT, FlightRecords, flight
from tests.support.waiting import until
from tests.telemetry.conftest import LARGE, SMALL, attempted, record, served


async def test_it_is_there_as_soon_as_the_request_has_ended(state: State) -> None:
    flights = FlightRecords(state)
    seen = served()
    assert await flights.find(seen.request_id, "search") is None
    flights.add(seen)
    found = await flights.find(seen.request_id, "search")
    assert found is not None
    assert found["id"] == seen.request_id


async def test_another_team_does_not_see_it(state: State) -> None:
    flights, elsewhere = FlightRecords(state), FlightRecords(state)
    seen = served("search", error="odd")
    flights.add(seen)
    await flights.flush()
    for worker in (flights, elsewhere):
        assert await worker.find(seen.request_id, "other") is None
        assert await worker.find(seen.request_id, "") is None


async def test_another_worker_reads_it_through_the_state(state: State) -> None:
    flights, elsewhere = FlightRecords(state), FlightRecords(state)
    seen = served(trimmed_tokens=3, cost_pico=1)
    flights.add(seen)
    assert await elsewhere.find(seen.request_id, "search") is None
    await flights.flush()
    assert await elsewhere.find(seen.request_id, "search") == orjson.loads(orjson.dumps(flight(seen)))


async def test_it_is_kept_for_an_hour(state: State) -> None:
    flights = FlightRecords(state)
    seen = served(error="odd")
    flights.add(seen)
    await flights.flush()
    (key,) = await state.call("KEYS", state.key("flight", "*"))
    left = await state.call("TTL", key)
    assert KEEP_S - 5 <= left <= KEEP_S


def retried() -> Record:
    seen = record()
    attempted(seen, SMALL, outcome="failed")
    attempted(seen, LARGE)
    return seen


@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        (served(), False),
        (served(cache="exact"), False),
        (served(route=Route((SMALL,), "asked for by name", considered=(Considered("small"),))), False),
        (served(error="all_backends_failed"), True),
        (served(degraded={"state"}), True),
        (served(escalated=True), True),
        (served(trimmed_tokens=7), True),
        (served(cache="semantic"), True),
        (retried(), True),
        (served(route=Route((SMALL,), "cheapest adequate", grade=Grade(0.2))), True),
        (served(route=Route((SMALL,), "cheapest", considered=(Considered("small"), Considered("large")))), True),
    ],
)
async def test_the_state_keeps_only_what_the_ledgers_rows_do_not_tell(state: State, seen: Record, kept: bool) -> None:
    flights, elsewhere = FlightRecords(state), FlightRecords(state)
    flights.add(seen)
    await flights.flush()
    assert (await elsewhere.find(seen.request_id, "search") is not None) == kept
    assert bool(await state.call("KEYS", state.key("flight", "*"))) == kept
    assert await flights.find(seen.request_id, "search") is not None
    assert flights.dropped == 0


async def test_the_oldest_leave_this_workers_memory_but_not_the_state(state: State) -> None:
    flights = FlightRecords(state)
    records = [served(error="odd") for _ in range(RECENT + 40)]
    for number, seen in enumerate(records):
        flights.add(seen)
        if number % MOST == MOST - 1:
            await flights.flush()
    await flights.flush()
    for seen in (records[0], records[-1]):
        assert await flights.find(seen.request_id, "search") is not None
    assert flights.dropped == 0


async def test_of_very_many_a_sample_is_kept_and_what_went_wrong_before_what_went_well(state: State) -> None:
    flights, elsewhere = FlightRecords(state), FlightRecords(state)
    decided = [served(trimmed_tokens=0, cache="semantic") for _ in range(MOST + 5)]
    failed = [served(error="all_backends_failed") for _ in range(MOST - 4)]
    for seen in (*decided, *failed):
        flights.add(seen)
    await flights.flush()
    assert flights.dropped == 5 + MOST - 4
    assert all([await elsewhere.find(seen.request_id, "search") for seen in (*decided[:4], *failed)])
    assert not any([await elsewhere.find(seen.request_id, "search") for seen in decided[4:]])
    assert all([await flights.find(seen.request_id, "search") for seen in decided])


class Shelf:
    """An archive of one request."""

    def __init__(self, request_id: str, team: str) -> None:
        self.found = {"id": request_id, "team": team, "source": "ledger"}
        self.asked = 0

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        self.asked += 1
        return self.found if (request_id, team) == (self.found["id"], self.found["team"]) else None


async def test_the_archive_is_asked_for_what_is_neither_recent_nor_in_the_state(state: State) -> None:
    plain, failed = served(), served(error="odd")
    shelf = Shelf(plain.request_id, "search")
    flights, elsewhere = FlightRecords(state, shelf), FlightRecords(state, shelf)
    for seen in (plain, failed):
        flights.add(seen)
    await flights.flush()
    for worker, seen in ((flights, plain), (elsewhere, failed)):
        found = await worker.find(seen.request_id, "search")
        assert found is not None
        assert found["source"] == "recorder"
    assert await flights.find(plain.request_id, "other") is None  # who knows the request knows whose it is
    assert shelf.asked == 0
    assert await elsewhere.find(plain.request_id, "search") == shelf.found
    assert await elsewhere.find(plain.request_id, "other") is None


async def test_while_the_state_is_away_recent_ones_are_in_memory(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    await asyncio.to_thread(server.start)
    state = State(server.url, timeout_s=0.2)
    await state.open()
    try:
        before, after = served(error="odd"), served(error="odd")
        flights, elsewhere = FlightRecords(state), FlightRecords(state)
        archived = FlightRecords(state, Shelf(before.request_id, "search"))
        flights.add(before)
        await flights.flush()
        await asyncio.to_thread(server.kill)
        await until(lambda: not state.healthy)
        flights.add(after)
        await flights.flush()
        assert await flights.find(after.request_id, "search") is not None
        assert await elsewhere.find(before.request_id, "search") is None
        assert await archived.find(before.request_id, "search") is not None
    finally:
        await state.aclose()
        await asyncio.to_thread(server.stop)


async def test_a_fact_of_an_odd_type_stops_neither_its_record_nor_the_next(state: State) -> None:
    flights = FlightRecords(state)
    odd, fine = served(error="odd"), served(error="odd")
    odd.note("odd", value=object())
    flights.add(odd)
    flights.add(fine)
    await flights.flush()
    for seen in (odd, fine):
        assert await FlightRecords(state).find(seen.request_id, "search") is not None


def test_it_tells_what_was_decided_and_why() -> None:
    seen = record(difficulty=0.7, cost_pico=8_000_000, escalated=True, finish="stop", tags={"f": "x"}, session="s")
    seen.route = Route(
        (SMALL, LARGE),
        "cheapest adequate",
        escalate_to=LARGE,
        grade=Grade(0.7, abstained=True),
        reference=LARGE,
        considered=(Considered("small", adequacy=0.9, cost_pico=10), Considered("far", "not in this region")),
        strategy="one backend",
        what_if=lambda: ("small would be chosen if large cost twice as much",),
    )
    attempted(seen, SMALL, outcome="escalated", confidence=0.3, cost_pico=None)
    attempted(seen, LARGE, cost_pico=8_000_000)
    told = flight(seen)
    assert told["route"] == {
        "reason": "cheapest adequate",
        "order": ["small", "large"],
        "reference": "large",
        "escalate_to": "large",
        "observed": None,
        "quality": None,
        "ceiling_usd": None,
        "pressure": 0.0,
        "strategy": "one backend",
        "what_if": ["small would be chosen if large cost twice as much"],
        "considered": [
            {"backend": "small", "excluded": None, "adequacy": 0.9, "cost_usd": "0.00000000001"},
            {"backend": "far", "excluded": "not in this region", "adequacy": None, "cost_usd": None},
        ],
    }
    assert [(one["outcome"], one["cost_usd"]) for one in told["attempts"]] == [("escalated", None), ("ok", "0.000008")]
    assert (told["difficulty"], told["abstained"], told["escalated"]) == (0.7, True, True)
    assert (told["tags"], told["session"], told["cost_usd"]) == ({"f": "x"}, "s", "0.000008")
    assert orjson.loads(orjson.dumps(told)) == told


def test_it_holds_no_address_and_no_secret() -> None:
    seen = record()
    attempted(seen, SMALL.model_copy(update={"api_key": "sk-upstream"}))
    told: Any = orjson.dumps(flight(seen))
    assert b"sk-upstream" not in told
    assert b"127.0.0.1" not in told
