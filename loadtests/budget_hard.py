"""Is a hard budget hard? Seeds of all that has overrun one: reasoning, bursts, documents, long after short answers.

`python -m loadtests budget --mix hard --seeds 60` runs each seed twice: undisturbed, and with a worker killed in the
middle. The provider's own meter is compared with the limit and with the ledger. Exit status: 1 when a bar is missed.
What a killed worker left in its sockets is counted at the kill; nothing else is allowed for.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop
from sqlalchemy import select

from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from loadtests.budget import FALSE_SHARE, KILL_SHARE
from loadtests.chaos_database import Sqlite
from loadtests.chaos_gateway import TEAM, ChaosGateway
from loadtests.hard_kill import Kill, Lost
from loadtests.hard_mix import UNBOUNDED, question
from loadtests.hard_provider import PRICES, Meter, Provider
from loadtests.hard_table import HEAD, draw, line, table

DEAREST_USD = 0.115
"""Ten thousand tokens of reasoning, a long answer and a document."""
MOST_OVERSHOOT, MOST_UNSETTLED, LEAST_USABLE = 0.001, 0.001, 0.97
MOST_REFUSALS = 2
"""So often in a row is a client refused while no answer is under way before it gives up."""
SPENT_SHARE, QUIET_S = 0.99, 8.0
"""Once so much of the limit is billed, a run ends when no answer has been under way for so long, though all clients go
on asking: for minutes yet, one of the cheapest requests would be admitted now and then."""

CONFIG = """\
backends:
  - {{name: plain, kind: openai, base_url: "{url}", model: plain, tier: large, price: {{input: 1, output: 10}},
      concurrent: 1024}}
  - {{name: thinking, kind: openai, base_url: "{url}", model: thinking, tier: large, capabilities: [reasoning, tools,
      json_schema], max_output_tokens: 16000, price: {{input: 1, output: 10}}, concurrent: 1024}}
  - {{name: small, kind: openai, base_url: "{url}", model: small, tier: small, capabilities: [logprobs],
      price: {{input: 0.1, output: 1}}, concurrent: 1024}}
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
    """(billed − on the ledger) ÷ limit; below 0 where more was booked than billed."""
    unsettled_usd: float = 0.0
    unread: float = 0.0
    """Of the limit, like the next two: written by the provider, and in the killed worker's sockets at the kill."""
    silent: float = 0.0
    """Generated for its calls and not written by then: reasoning, and plain answers."""
    later: float = 0.0
    """Generated for them after the kill, until the provider noticed."""
    false_refusals: int = 0
    refusals: int = 0
    unbounded_refusals: int = 0
    calls: int = 0
    whole: int = 0
    capped: int = 0
    escalated: int = 0
    """Weak answers on the ledger that were not served."""
    seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    curve: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the bars. What was billed and never booked is judged with a kill too: it overruns the limit as soon
        as clients have asked for the rest, and a run may end before they have."""
        booked_enough = self.unsettled <= MOST_UNSETTLED + self.unread
        judged = {
            "overshoot": self.overshoot <= MOST_OVERSHOOT + self.unread,
            "usable": self.usable >= LEAST_USABLE,
            "false refusals": not self.false_refusals,
            "unsettled": booked_enough and (self.killed or self.unsettled >= -MOST_UNSETTLED),
        }
        return tuple(name for name, met in judged.items() if not met)


class _Gateway(ChaosGateway):
    """With one budget and a provider of three models."""

    def __init__(self, home: Path, options: Options, port: int) -> None:
        database = Sqlite(home / "ledger.sqlite")
        super().__init__(home, database, port, options.workers)
        self.provider_port, url = port, f"http://127.0.0.1:{port}/v1"
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
            work = asyncio.gather(*(self._work(session) for _ in range(self._options.clients)))
            quiet_since = time.monotonic()
            while not work.done() and time.monotonic() < quiet_since + QUIET_S:
                await asyncio.wait([work], timeout=0.1)
                if self._meter.open or not self._spent:
                    quiet_since = time.monotonic()
            if work.cancel():
                await asyncio.wait([work])
            else:
                await work  # raises what a client met
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

    @property
    def _spent(self) -> bool:
        return self._meter.bill_usd >= SPENT_SHARE * self._options.limit_usd

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
    gateway = _Gateway(home, options, provider.sockets[0].getsockname()[1])
    try:
        await asyncio.to_thread(gateway.start)
        key = orjson.loads(await asyncio.to_thread(gateway.run, "keys", "create", "--team", TEAM, "--json"))["key"]
        await asyncio.sleep(1.2)  # until every worker knows the key
        began = time.monotonic()
        tasks.spawn(_watch(meter, began), "watch")
        blow = Kill(meter, gateway.provider_port)
        if kill:
            tasks.spawn(_kill(options, meter, gateway, blow), "kill")
        url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions"
        await _Clients(options, meter, outcome, url, key).run()
        outcome.seconds = time.monotonic() - began
        await asyncio.to_thread(gateway.stop)
        await asyncio.to_thread(gateway.run, "ledger", "drain")
        booked, outcome.escalated = _booked(gateway)
        _account(outcome, options.limit_usd, meter, blow.lost(), booked)
        return outcome
    finally:
        await tasks.aclose()
        await asyncio.to_thread(gateway.abandon)
        provider.close()


async def _watch(meter: Meter, began: float) -> None:
    while True:
        meter.curve.append((round(time.monotonic() - began, 3), meter.bill_usd, meter.open))
        await asyncio.sleep(0.2)


async def _kill(options: Options, meter: Meter, gateway: _Gateway, blow: Kill) -> None:
    while meter.bill_usd < KILL_SHARE * options.limit_usd:
        await asyncio.sleep(0.01)
    blow.strike(gateway.facts()["workers"][0])


def _account(outcome: Outcome, limit: float, meter: Meter, lost: Lost, booked: float) -> None:
    billed = meter.bill_usd
    outcome.overshoot, outcome.usable = billed / limit - 1, booked / limit
    outcome.unsettled_usd, outcome.unsettled = billed - booked, (billed - booked) / limit
    outcome.unread, outcome.silent = lost.unread_usd / limit, lost.silent_usd / limit
    outcome.later = lost.later_usd / limit
    outcome.calls, outcome.whole, outcome.capped = len(meter.calls), meter.whole, meter.capped
    outcome.models, outcome.curve = dict(Counter(call.model for call in meter.calls)), meter.curve


def _booked(gateway: ChaosGateway) -> tuple[float, int]:
    """USD on the ledger, and rows of escalated answers."""
    database = Database(gateway.database.url)
    try:
        with database.read() as connection:
            rows = connection.execute(select(ledger.c.cost_pico, ledger.c.outcome)).all()
            return sum(cost or 0 for cost, _ in rows) / 1e12, sum(outcome == "escalated" for _, outcome in rows)
    finally:
        database.close()


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
    parser.add_argument("--out", type=Path, default=Path("loadtest-results"), help="for budget-hard.*")
    given = parser.parse_args(words)
    options = Options(given.limit_usd, given.clients, given.workers)
    first = random.randrange(10**6) if given.seed is None else given.seed
    outcomes = []
    print(HEAD, file=sys.stderr, flush=True)
    kinds = {"both": (False, True), "never": (False,), "always": (True,)}[given.kill]
    for seed in range(first, first + given.seeds):
        for kill in kinds:
            with tempfile.TemporaryDirectory(prefix="tg-hard-", ignore_cleanup_errors=True) as home:
                outcome = uvloop.run(play(options, seed, Path(home), kill=kill))
            outcomes.append(outcome)
            print(line(outcome), outcome.statuses, file=sys.stderr, flush=True)
    _write(options, outcomes, given.out)
    print(table(outcomes))
    return int(any(one.missed for one in outcomes))


def _write(options: Options, outcomes: list[Outcome], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    runs = [{**asdict(one), "missed": one.missed} for one in outcomes]
    found = {"options": asdict(options), "prices": PRICES, "outcomes": runs}
    (out / "budget-hard.json").write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    (out / "budget-hard.txt").write_text(table(outcomes) + "\n")
    try:
        draw(options, outcomes, out / "budget-hard.png")
    except ImportError:
        print("No plot: matplotlib is not installed (pip install 'thriftgate[loadtest]').", file=sys.stderr)
