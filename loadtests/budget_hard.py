"""Is a hard budget hard? Seeds of all that has overrun one: reasoning, bursts, documents, long after short answers.

`python -m loadtests budget --mix hard --seeds 60` runs each seed twice: undisturbed, and with a worker killed in the
middle. The provider's own meter is compared with the limit and with the ledger. Exit status: 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop
from sqlalchemy import select

from gateway.domain.tasks import Tasks
from gateway.state.sql import Database
from gateway.state.tables import ledger
from loadtests.budget import FALSE_SHARE, KILL_SHARE
from loadtests.chaos_database import Sqlite
from loadtests.chaos_house import TEAM, House
from loadtests.hard_provider import PRICES, Meter, Provider

MOST_REASONING, MOST_PAGES = 10_000, 4
DEAREST_USD = 0.115
"""Ten thousand tokens of reasoning, a long answer and a document."""
MOST_OVERSHOOT, LEAST_USABLE = 0.001, 0.97
MOST_REFUSALS = 4
"""So often in a row is a client refused, after the last answer has ended, before it gives up."""
KINDS = {"stream": 4, "burst": 2, "thinking": 4, "plain": 2, "document": 1, "cascade": 2, "tools": 1, "json": 1}
"""Kind of request → how often. Tool calls and JSON cannot be bounded below what they ask for."""
UNBOUNDED = frozenset(("tools", "json"))

CONFIG = """\
backends:
  - {{name: plain, kind: openai, base_url: "{url}", model: plain, tier: large, price: {{input: 1, output: 10}},
      concurrent: 1024}}
  - {{name: thinking, kind: openai, base_url: "{url}", model: thinking, tier: large, capabilities: [reasoning, tools,
      json_schema], max_output_tokens: 16000, price: {{input: 1, output: 10}}, concurrent: 1024}}
  - {{name: small, kind: openai, base_url: "{url}", model: small, tier: small, price: {{input: 0.1, output: 1}},
      concurrent: 1024}}
local_model: {{enabled: false}}
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
requests: {{drain: 10, lag: 5}}
ledger: {{database_url: "{database}"}}
"""
POLICY = """\
team: {team}
models: {{mixed: {{candidates: [small, plain], reference: plain, quality: 0.5}}}}
cache: {{enabled: false}}
context: {{enabled: false}}
budget: {{limit_usd: {limit}, window: total}}
"""


@dataclass(frozen=True, slots=True)
class Options:
    limit_usd: float = 200 * DEAREST_USD
    clients: int = 128
    workers: int = 3


@dataclass(slots=True)
class Outcome:
    seed: int
    killed: bool
    overshoot: float = 0.0
    """(billed by the provider − limit) ÷ limit; below 0 where it stayed within."""
    usable: float = 0.0
    """On the ledger ÷ limit."""
    unsettled: float = 0.0
    """(billed − on the ledger) ÷ limit: what a killed worker had not read, and could not book."""
    false_refusals: int = 0
    refusals: int = 0
    unbounded_refusals: int = 0
    calls: int = 0
    capped: int = 0
    seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        allowed = MOST_OVERSHOOT + (max(self.unsettled, 0.0) if self.killed else 0.0)
        return self.overshoot <= allowed and self.usable >= LEAST_USABLE - self.unsettled and not self.false_refusals


@lru_cache(maxsize=MOST_PAGES)
def pdf(pages: int) -> str:
    from pypdf import PdfWriter

    writer, file = PdfWriter(), io.BytesIO()
    for _ in range(pages):
        writer.add_blank_page(width=595, height=842)
    writer.write(file)
    return "data:application/pdf;base64," + base64.b64encode(file.getvalue()).decode()


def question(seed: int, number: int) -> tuple[str, dict[str, Any]]:
    """Kind and body of request `number`. Answers are short at first and long later, to trap what is learned."""
    chance = random.Random(f"{seed} {number}")
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    long = number > 200 and chance.random() < 0.5
    script: dict[str, Any] = {
        "number": number,
        "tokens": chance.randint(200, 1500) if long else chance.randint(5, 150),
        "reasoning": chance.choice((0, chance.randint(500, MOST_REASONING))) if kind == "thinking" else 0,
        "per_chunk": 10**6 if kind == "burst" else chance.randint(1, 20),
        "pages": chance.randint(1, MOST_PAGES) if kind == "document" else 0,
        "pace_s": 0.003,
        "fail": chance.random() < 0.05,
        "weak": kind == "cascade" and chance.random() < 0.4,
    }
    body: dict[str, Any] = {"model": "thinking" if kind in ("thinking", *UNBOUNDED) else "plain", "stream": True}
    match kind:
        case "plain":
            body["stream"] = False
        case "cascade":
            body |= {"model": "mixed", "stream": chance.random() < 0.5}
        case "tools":
            body |= {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}
        case "json":
            body["response_format"] = {"type": "json_object"}
    if kind in UNBOUNDED or chance.random() < 0.2:
        script["max"] = body["max_completion_tokens"] = chance.choice((2000, 4000, 12_000))
    content: Any = orjson.dumps(script).decode()
    if script["pages"]:
        file = {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf(script["pages"])}}
        content = [file, {"type": "text", "text": content}]
    return kind, {**body, "messages": [{"role": "user", "content": content}]}


class _House(House):
    """With one budget and a provider of three models."""

    def __init__(self, home: Path, options: Options, port: int) -> None:
        database = Sqlite(home / "ledger.sqlite")
        super().__init__(home, database, port, options.workers)
        url = f"http://127.0.0.1:{port}/v1"
        (home / "gateway.yaml").write_text(CONFIG.format(url=url, database=database.url))
        (home / "policies" / f"{TEAM}.yaml").write_text(POLICY.format(team=TEAM, limit=options.limit_usd))


class _Clients:
    """So many at a time, each asking again as soon as it has its answer, until nobody is admitted any more."""

    def __init__(self, options: Options, meter: Meter, outcome: Outcome, url: str, key: str) -> None:
        self._options, self._meter, self._outcome, self._url = options, meter, outcome, url
        self._headers = {"authorization": f"Bearer {key}"}
        self._numbers: Iterator[int] = iter(range(10**9))
        self._statuses: Counter[str] = Counter()

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(self._work(session) for _ in range(self._options.clients)))
        self._outcome.statuses = dict(self._statuses)

    async def _work(self, session: aiohttp.ClientSession) -> None:
        refused = 0
        while refused < MOST_REFUSALS:
            kind, body = question(self._outcome.seed, next(self._numbers))
            status = await self._ask(session, body)
            self._statuses[status] += 1
            if status != "429":
                refused = 0
                continue
            self._note_refusal(kind)
            refused += not self._meter.open
            await asyncio.sleep(0.1)

    def _note_refusal(self, kind: str) -> None:
        if kind in UNBOUNDED:
            self._outcome.unbounded_refusals += 1
            return
        self._outcome.refusals += 1
        left = self._options.limit_usd - self._meter.final_usd
        self._outcome.false_refusals += left >= FALSE_SHARE * self._options.limit_usd

    async def _ask(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> str:
        try:
            async with session.post(self._url, json=body, headers=self._headers) as answer:
                await answer.read()
                return str(answer.status)
        except (aiohttp.ClientError, TimeoutError):
            await asyncio.sleep(0.05)
            return "lost"


async def play(options: Options, seed: int, home: Path, *, kill: bool) -> Outcome:
    """Raises RuntimeError when the gateway does not start."""
    outcome, meter, tasks = Outcome(seed, kill), Meter(), Tasks()
    provider = await asyncio.start_server(Provider(meter).serve, "127.0.0.1", 0, backlog=1024, limit=2**24)
    house = _House(home, options, provider.sockets[0].getsockname()[1])
    try:
        await asyncio.to_thread(house.start)
        key = orjson.loads(await asyncio.to_thread(house.run, "keys", "create", "--team", TEAM, "--json"))["key"]
        await asyncio.sleep(1.2)  # until every worker knows the key
        began = time.monotonic()
        if kill:
            tasks.spawn(_kill(options, meter, house), "kill")
        url = f"http://127.0.0.1:{house.port}/v1/chat/completions"
        await _Clients(options, meter, outcome, url, key).run()
        outcome.seconds = time.monotonic() - began
        await asyncio.to_thread(house.stop)
        await asyncio.to_thread(house.run, "ledger", "drain")
        booked, limit = _booked_usd(house), options.limit_usd
        outcome.overshoot, outcome.usable = meter.bill_usd / limit - 1, booked / limit
        outcome.unsettled = (meter.bill_usd - booked) / limit
        outcome.calls, outcome.capped = len(meter.calls), meter.capped
        return outcome
    finally:
        await tasks.aclose()
        await asyncio.to_thread(house.abandon)
        provider.close()


async def _kill(options: Options, meter: Meter, house: House) -> None:
    while meter.bill_usd < KILL_SHARE * options.limit_usd:
        await asyncio.sleep(0.01)
    os.kill(house.facts()["workers"][0], signal.SIGKILL)


def _booked_usd(house: House) -> float:
    database = Database(house.database.url)
    try:
        with database.read() as connection:
            return sum(cost or 0 for (cost,) in connection.execute(select(ledger.c.cost_pico))) / 1e12
    finally:
        database.close()


def line(one: Outcome) -> str:
    return (
        f"{one.seed:<9} {'yes' if one.killed else 'no':<6} {one.overshoot:>+9.3%} {one.usable:>7.2%} "
        f"{one.unsettled:>+10.3%} {one.false_refusals:>6} {one.refusals:>8} {one.unbounded_refusals:>10} "
        f"{one.calls:>6} {one.capped:>7} {one.seconds:>8.1f}  {'met' if one.passed else 'MISSED'}"
    )


def table(outcomes: list[Outcome]) -> str:
    head = "seed      killed overshoot  usable  unsettled  false  refused  unbounded  calls  capped  seconds  bar"
    lines = [head, *map(line, outcomes)]
    for killed in (False, True):
        if some := [one for one in outcomes if one.killed is killed]:
            worst, usable = max(one.overshoot for one in some), [one.usable for one in some]
            lines.append(
                f"{'killed' if killed else 'undisturbed'}: {len(some)} runs, worst overshoot {worst:+.3%}, usable "
                f"{statistics.median(usable):.2%} ({min(usable):.2%}–{max(usable):.2%}), "
                f"{sum(one.false_refusals for one in some)} false refusals, {sum(one.calls for one in some)} calls"
            )
    return "\n".join(lines)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests budget --mix hard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = Options()
    parser.add_argument("--mix", choices=("hard",), required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many runs of each kind")
    parser.add_argument("--seed", type=int, help="of the first; default: another each time, printed")
    parser.add_argument("--limit-usd", type=float, default=usual.limit_usd, help=f"default {usual.limit_usd:g}")
    parser.add_argument("--clients", type=int, default=usual.clients, help=f"default {usual.clients}")
    parser.add_argument("--workers", type=int, default=usual.workers, help=f"default {usual.workers}")
    parser.add_argument("--kill", choices=("both", "never", "always"), default="both", help="a worker in the middle")
    parser.add_argument("--out", type=Path, default=Path("loadtest-results"), help="for budget-hard.json and .txt")
    given = parser.parse_args(words)
    options = Options(given.limit_usd, given.clients, given.workers)
    first = random.randrange(10**6) if given.seed is None else given.seed
    outcomes = []
    kinds = {"both": (False, True), "never": (False,), "always": (True,)}[given.kill]
    for seed in range(first, first + given.seeds):
        for kill in kinds:
            with tempfile.TemporaryDirectory(prefix="tg-hard-", ignore_cleanup_errors=True) as home:
                outcome = uvloop.run(play(options, seed, Path(home), kill=kill))
            outcomes.append(outcome)
            print(line(outcome), outcome.statuses, file=sys.stderr, flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    found = {"options": asdict(options), "prices": PRICES, "outcomes": [asdict(one) for one in outcomes]}
    (given.out / "budget-hard.json").write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    (given.out / "budget-hard.txt").write_text(table(outcomes) + "\n")
    print(table(outcomes))
    return int(not all(one.passed for one in outcomes))
