"""A receiver that answers as its script says, and teams that spend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest_asyncio
from aiohttp import web
from sqlalchemy import insert

from gateway.alerts.alerts import Alerts
from gateway.alerts.delivery.posting import Poster
from gateway.alerts.delivery.receivers import Receivers
from gateway.domain.money.budget import Budget
from gateway.domain.policy import Notify, Policy
from gateway.ledger.rows import Row
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from tests.fakes.clock import StoppedClock

USD = 10**12


class Receiver:
    """A webhook that answers as its script says, then with 200."""

    def __init__(self) -> None:
        self.script: list[str] = []
        self.got: list[tuple[dict[str, Any], str]] = []
        self.elsewhere = 0
        self.url = ""

    async def hook(self, request: web.Request) -> web.StreamResponse:
        answer = self.script.pop(0) if self.script else "accept"
        self.got.append((orjson.loads(await request.read()), request.headers["idempotency-key"]))
        match answer:
            case "fail":
                return web.Response(status=500, text="no")
            case "hang":
                await asyncio.sleep(60)
            case "redirect":
                return web.Response(status=307, headers={"location": "/elsewhere"})
            case "cut":
                assert request.transport is not None
                request.transport.abort()
        return web.Response(status=204)

    async def other(self, request: web.Request) -> web.Response:
        self.elsewhere += 1
        return web.Response()


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook/secret-token", receiver.hook)
    app.router.add_post("/elsewhere", receiver.other)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook/secret-token"
    yield receiver
    await runner.cleanup()


ZoneInfo("UTC")  # read from disk here, once, and not on the event loop of the first test that makes a policy


def policy(*targets: str, limit: str = "10", **facts: Any) -> Policy:
    notify = tuple(Notify(webhook=target) for target in targets)
    budget = Budget(limit_usd=Decimal(limit), window="day", notify=notify, **facts)
    return Policy(team="search", budget=(budget,))


def make_alerts(
    database: Database,
    policies: Mapping[str, Policy] | Callable[[], Mapping[str, Policy]],
    receiver: Receiver | None = None,
    clock: StoppedClock | None = None,
    organisations: Mapping[str, Sequence[Budget]] | None = None,
) -> Alerts:
    urls = {"env:HOOK": receiver.url, "env:OTHER_HOOK": receiver.url} if receiver else {}
    known = make_receivers(lambda target: urls.get(target, ""))
    return Alerts(
        database,
        policies if callable(policies) else lambda: policies,
        organisations=organisations or {},
        receivers=known,
        clock=clock or StoppedClock(),
        interval_s=0.01,
    )


def make_receivers(url_of: Callable[[str], str], secret: str = "", timeout_s: float = 1.5) -> Receivers:
    return Receivers(poster=Poster(timeout_s=timeout_s), address_of=url_of, secret_of=lambda _: secret)


def row(number: int, usd: str, clock: StoppedClock, team: str = "search", **facts: Any) -> Row:
    values = {"id": f"r{number}", "request_id": f"r{number}", "attempt": 1, "at": clock.now, "organisation": "acme"}
    known = {"team": team, "key_id": "k", "cost_pico": int(Decimal(usd) * USD), "outcome": "ok", **facts}
    return Row(**{**values, **known})  # type: ignore[arg-type]


async def book(database: Database, *rows: Row) -> None:
    await database.run(lambda connection: connection.execute(insert(ledger), [row._asdict() for row in rows]))
