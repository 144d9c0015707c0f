"""`thriftgate demo`: sends about 20 real requests through a running gateway, and prints a row for each."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import click
import orjson
from aiohttp import web
from rich.console import Console
from rich.markup import escape

from gateway.backends.providers.discover import packaged_name
from gateway.cli import tables
from gateway.cli.develop.pauses import Pauses
from gateway.cli.develop.tour import MODEL, STEPS, Step, write_policy
from gateway.cli.echo import echo_json
from gateway.cli.options import Context, common
from gateway.domain.money.usage import Usage
from gateway.domain.units import pico_to_usd
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.report import Line, Report, usage
from gateway.policy.keys import create, revoke
from gateway.settings.gateway import Settings
from gateway.state.sql.database import Database

ALERT_PATIENCE_S = 6.0
LOCAL_PATIENCE_S = 20.0
LEDGER_PATIENCE_S, QUIET_S = 8.0, 1.5
"""`LEDGER_PATIENCE_S`: maximum seconds to wait until the ledger's sum no longer changes. `QUIET_S`: seconds for which
the sum must stay unchanged. The sum changes after the last answer, because background checks continue."""
POLICY_PATIENCE_S = 20.0


@click.command()
@common
@click.option("--team", help="The team that sends the requests; default: a new one with its own policy.")
def demo(context: Context, team: str | None) -> None:
    """Run the tour on the gateway that `thriftgate serve --demo` started with the same --data-dir.

    Every row is a real request over HTTP: difficulty, backend, cache, tokens, cost, savings, time. On a terminal, the
    tour waits for Enter after each chapter; with TOUR=fast it does not wait.
    """
    settings = context.of_running()
    try:
        runtime = orjson.loads(settings.paths.runtime.read_bytes())
        runtime["tour"]["alert_url"]
    except (OSError, ValueError, KeyError):
        raise click.ClickException(
            f"No gateway started with --demo is running on {settings.paths.data}; start one with "
            f"`thriftgate serve --demo --data-dir {settings.paths.data}`."
        ) from None
    tour = Demo(settings, runtime, team or f"tour-{secrets.token_hex(3)}", tables.console(stderr=context.as_json))
    rows = asyncio.run(tour.play())
    if context.as_json:
        echo_json(orjson.dumps([row.facts() for row in rows]))


@dataclass(slots=True)
class Row:
    """The result of one request."""

    step: Step
    status: int
    cache: str
    difficulty: str
    backend: str
    flight: dict[str, Any]
    ms: float
    saved_usd: Decimal | None
    answer: str

    @property
    def tokens(self) -> tuple[int, int]:
        """The input and output tokens of the attempt that gave the served answer."""
        attempts = self.flight.get("attempts") or [{}]
        return attempts[-1].get("input_tokens", 0), attempts[-1].get("output_tokens", 0)

    def facts(self) -> dict[str, Any]:
        given, out = self.tokens
        return {
            "look": self.step.look, "ask": self.step.ask, "status": self.status, "cache": self.cache,
            "difficulty": self.difficulty, "backend": self.backend, "input_tokens": given, "output_tokens": out,
            "trimmed_tokens": self.flight.get("trimmed_tokens", 0), "cost_usd": self.flight.get("cost_usd"),
            "saved_usd": None if self.saved_usd is None else f"{self.saved_usd:f}",
            "escalated": self.flight.get("escalated", False), "ms": round(self.ms, 1), "answer": self.answer,
        }  # fmt: skip


class Demo:
    """Runs the tour with its own two teams and its own webhook, and prints the results."""

    def __init__(self, settings: Settings, runtime: dict[str, Any], team: str, console: Console) -> None:
        self._settings, self._runtime, self._team, self._console = settings, runtime, team, console
        self._base = f"http://{runtime['host']}:{runtime['port']}"
        self._prices = PriceBook.load()
        self._alerts: list[dict[str, Any]] = []
        self._alerted = asyncio.Event()
        self._list_name = ""
        self._usage: dict[str, Usage] = {}  # answer -> tokens of the call that first gave it
        self._began = time.time()

    async def play(self) -> list[Row]:
        database = Database(self._settings.database_url)
        keys = {
            name: await asyncio.to_thread(create, database, team, name="tour", scopes=("inference",))
            for name, team in (("tour", self._team), ("other", f"{self._team}-neighbour"))
        }
        try:
            async with self._receiver(), aiohttp.ClientSession() as session:
                await asyncio.to_thread(self._write_policy)
                await self._local_model(session)
                await self._in_force(session, keys["tour"][0])
                rows = await self._ask_all(session, {name: secret for name, (secret, _) in keys.items()})
                await self._show_alert()
                teams = [key.team for _, key in keys.values()]
                self._sum_up(rows, *[await self._spent(database, team, rows) for team in teams])
                return rows
        finally:
            for _, key in keys.values():
                await asyncio.to_thread(revoke, database, key.id)
            await asyncio.to_thread(database.close)

    def _write_policy(self) -> None:
        folder = self._settings.paths.data / "tour"
        if not (folder / f"{self._team}.yaml").exists():
            installed = self._runtime.get("local_model")
            toy = packaged_name(self._settings.config.local_model) if installed else None
            write_policy(folder, self._team, self._runtime["tour"]["variable"], toy)

    @asynccontextmanager
    async def _receiver(self) -> AsyncIterator[None]:
        """Run a webhook receiver for the alerts of the gateway."""

        async def accept(request: web.Request) -> web.Response:
            self._alerts.append(orjson.loads(await request.read()))
            self._alerted.set()
            return web.Response(status=204)

        address = urlsplit(self._runtime["tour"]["alert_url"])
        application = web.Application()
        application.router.add_post(address.path, accept)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, address.hostname, address.port).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def _local_model(self, session: aiohttp.ClientSession) -> None:
        """Wait until the local model is loaded. The gateway already serves before the model is loaded, but the tour
        should show both tiers."""
        if not self._runtime.get("local_model"):
            self._console.print(
                "[dim]No local model is installed (`thriftgate model fetch` gets it), so there is one tier only.[/]",
                markup=True,
            )
            return
        address = self._runtime["local_model"]["url"].removesuffix("/v1") + "/health"
        with self._console.status("waiting for the local model to load"):
            until = time.monotonic() + LOCAL_PATIENCE_S
            while time.monotonic() < until:
                try:
                    async with session.get(address) as reply:
                        if reply.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)

    async def _in_force(self, session: aiohttp.ClientSession, secret: str) -> None:
        """Wait until the running gateway uses the new keys and the new policy, which takes at most a second."""
        until = time.monotonic() + POLICY_PATIENCE_S
        while time.monotonic() < until:
            async with session.get(f"{self._base}/v1/models", headers={"authorization": f"Bearer {secret}"}) as reply:
                if f'"{MODEL}"'.encode() in await reply.read():
                    return
            await asyncio.sleep(0.05)
        raise click.ClickException("The gateway did not load the tour's policy; see its log.")

    async def _ask_all(self, session: aiohttp.ClientSession, secrets_: dict[str, str]) -> list[Row]:
        rows: list[Row] = []
        pauses = Pauses(self._console)
        chapters = sum(bool(step.chapter) for step in STEPS)
        number = 0
        self._console.print(LEGEND, markup=True)
        for step in STEPS:
            if step.chapter:
                if number:
                    await pauses.wait()
                number += 1
                self._console.rule(f"{number} of {chapters}: {step.chapter}")
                self._console.print(_line(HEAD), style="dim")
            if step.kill_local:
                self._kill_local()
            row = await self._ask(session, step, secrets_[step.team])
            rows.append(row)
            self._show(row)
        return rows

    def _show(self, row: Row) -> None:
        """Print one request: its purpose, the question, the answer, and the line of figures."""
        self._console.print(f"[bold]{escape(row.step.look)}[/]", markup=True)
        for mark, text in (("asks", row.step.ask), ("gets", row.answer)):
            self._console.print(f"  [dim]{mark}[/] {escape(_short(text))}", markup=True)
        self._console.print(_line(_cells(row)), style="dim" if row.cache in ("exact", "semantic") else None)

    def _kill_local(self) -> None:
        pid = (orjson.loads(self._settings.paths.runtime.read_bytes()).get("local_model") or {}).get("pid")
        if pid:
            os.kill(pid, signal.SIGKILL)

    async def _ask(self, session: aiohttp.ClientSession, step: Step, secret: str) -> Row:
        headers = {"authorization": f"Bearer {secret}", **step.headers}
        started = time.perf_counter()
        async with session.post(f"{self._base}/v1/chat/completions", json=step.body(), headers=headers) as reply:
            body = await reply.read()
        ms = (time.perf_counter() - started) * 1000
        flight: dict[str, Any] = {}
        async with session.get(
            f"{self._base}/v1/requests/{reply.headers.get('x-request-id', '')}", headers=headers
        ) as found:
            if found.status == 200:
                flight = orjson.loads(await found.read())
        answer = _text(body, step.stream)
        return Row(
            step,
            reply.status,
            reply.headers.get("x-thriftgate-cache", "–"),
            reply.headers.get("x-thriftgate-difficulty", "–"),
            reply.headers.get("x-thriftgate-backend", "–"),
            flight,
            ms,
            self._saved(flight, answer),
            answer,
        )

    def _saved(self, flight: dict[str, Any], answer: str) -> Decimal | None:
        """The saving of a request: the list price of the model that represents the strong tier, minus the cost. If that
        model is simulated, the saving is hypothetical.

        A cached answer counts with the tokens of the call that generated it.
        """
        found = self._prices.stand_in("", "large")
        if found is None or not flight:
            return None
        price, self._list_name = found
        attempts = flight["attempts"]
        usage = self._usage.get(answer)
        if attempts:
            usage = Usage(attempts[-1]["input_tokens"], output_tokens=attempts[-1]["output_tokens"])
            self._usage[answer] = usage
        if usage is None or (attempts and attempts[-1]["tier"] != "small"):
            return None
        return Decimal(price.cost(usage)).scaleb(-12) - Decimal(flight["cost_usd"] or 0)

    async def _show_alert(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._alerted.wait(), ALERT_PATIENCE_S)
        for alert in self._alerts:
            text = escape(str(alert.get("text", alert)))
            self._console.print(f"[yellow]alert received at the webhook:[/] {text}", markup=True)
        if not self._alerts:
            self._console.print("[yellow]no budget alert arrived: this tour cost too little[/]", markup=True)

    async def _spent(self, database: Database, team: str, rows: list[Row]) -> Line:
        """The team's spend in the ledger, as `thriftgate usage` and the page show it. Waits until the ledger has a row
        for each of `rows` and gets no more rows."""
        asked = sum(row.flight.get("team") == team for row in rows)
        report, seen_at = await usage(database, team=team, since=self._began), time.monotonic()
        until = seen_at + LEDGER_PATIENCE_S
        while time.monotonic() < until and (_requests(report) < asked or time.monotonic() < seen_at + QUIET_S):
            await asyncio.sleep(0.2)
            found = await usage(database, team=team, since=self._began)
            if found.total != report.total:
                report, seen_at = found, time.monotonic()
        return report.total

    def _sum_up(self, rows: list[Row], own: Line, other: Line) -> None:
        saved = sum((row.saved_usd for row in rows if row.saved_usd is not None), Decimal(0))
        table = tables.Table("The tour", *tables.prose("in figures"))
        table.add_row("requests", f"{len(rows)}, of which answered {sum(row.status == 200 for row in rows)}")
        table.add_row("from cache", str(sum(row.cache in ("exact", "semantic") for row in rows)))
        table.add_row(
            "small tier", str(sum((row.flight.get("attempts") or [{}])[-1].get("tier") == "small" for row in rows))
        )
        table.add_row("spent", f"${pico_to_usd(own.cost_pico):.6f}")
        table.add_row("of which background checks", f"${pico_to_usd(own.checks_pico):.6f}, {own.checks} calls")
        table.add_row("spent by the other team", f"${pico_to_usd(other.cost_pico):.6f}")
        table.add_row("saved, hypothetical", f"${saved:.6f} against list prices of {self._list_name}")
        self._console.print(table)


def _requests(report: Report) -> int:
    """The number of requests in the ledger, including requests to simulated backends. A request that was sent to both a
    real and a simulated backend counts twice."""
    return report.total.requests + sum(one.requests for one in report.simulated)


LEGEND = """\
Two models. [bold]local-smollm2[/] is a 135M toy on this machine; it answers only the
tour's easy questions. Everything else goes to a stronger model. Without a
provider's key, [bold]simulated-large[/] stands in for it; its answers say "\\[simulated]".

[dim]hard[/]      graded difficulty, 0 to 1; – if nothing was graded
[dim]backend[/]   the backend that answered; ↑ if the toy's answer was too unsure
[dim]cache[/]     exact: same question; semantic: same meaning, verified; miss: new
[dim]in trim out[/]   tokens: read, dropped because too old, written
[dim]cost saved[/]    µ$ is a millionth of a dollar; saved: at a large model's price
"""
HEAD = ("hard", "backend", "cache", "in", "trim", "out", "cost µ$", "saved µ$", "ms")
_WIDTHS = (5, 17, 8, 5, 4, 3, 8, 9, 4)
"""Column widths, 80 in total."""


def _short(text: str, most: int = 70) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _line(cells: tuple[str, ...]) -> str:
    return "  " + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _cells(row: Row) -> tuple[str, ...]:
    given, out = row.tokens
    cost = row.flight.get("cost_usd")
    backend = row.backend + ("↑" if row.flight.get("escalated") else "")
    if row.status != 200:
        return (row.difficulty, f"refused {row.status}", row.cache, "", "", "", "", "", f"{row.ms:.0f}")
    return (
        row.difficulty,
        backend,
        row.cache,
        str(given),
        str(row.flight.get("trimmed_tokens", 0)),
        str(out),
        f"{Decimal(cost) * 10**6:.2f}" if cost else "–",
        f"{row.saved_usd * 10**6:.2f}" if row.saved_usd is not None else "–",
        f"{row.ms:.0f}",
    )


def _text(body: bytes, stream: bool) -> str:
    """The text of an answer, which is a stream or a plain body."""
    try:
        if not stream:
            return str(orjson.loads(body)["choices"][0]["message"]["content"])
        events = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
        choices = [orjson.loads(event)["choices"] for event in events]
        return "".join(choice[0]["delta"].get("content") or "" for choice in choices if choice)
    except (ValueError, KeyError, IndexError):
        return body.decode("utf-8", "replace")[:200]
