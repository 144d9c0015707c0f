"""How near a hard budget comes to what it allows: one tenant, many streams over several workers, until it is spent.

`python -m loadtests budget` starts `thriftgate serve`, a provider that streams a token a chunk, and clients that go on
asking until none is admitted; then the same with a worker killed in the middle, and two naive ways of counting,
simulated over the same questions. Exit status: 1 when a bar is missed. The seed decides the lengths of all answers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import uvloop
from sqlalchemy import select

from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from loadtests import budget_naive, budget_table
from loadtests.budget_stage import MODEL, PROMPT_TOKENS, Clients, Provider, Stage
from loadtests.chaos_database import Sqlite
from loadtests.chaos_gateway import TEAM, ChaosGateway

FALSE_SHARE = 0.1
"""A refusal is false while so much of the budget would be left over if every answer under way came to its end."""
KILL_SHARE = 0.5
"""Of the budget delivered, when a worker is killed."""

CONFIG = """\
backends:
  - {{name: scripted, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      price: {{input: 1, output: 1}}, concurrent: 1024}}
local_model: {{enabled: false}}
telemetry: {{access_log: false}}
requests: {{drain: 10, lag: 5}}
ledger: {{database_url: "{database}"}}
"""
POLICY = """\
team: {team}
models: {{{model}: {{candidates: [scripted], escalate: false}}}}
cache: {{enabled: false}}
context: {{enabled: false}}
budget: {{{limit}, window: total, on_exhausted: truncate}}
"""


@dataclass(frozen=True, slots=True)
class Options:
    budget: int = 20_000
    streams: int = 128
    workers: int = 3
    pace_ms: float = 30.0
    """Between two tokens of a stream."""
    unit: str = "tokens"
    seed: int = 1


@dataclass(slots=True)
class Outcome:
    """One way of keeping a budget."""

    name: str
    overshoot: float
    """(delivered by the provider − budget) ÷ budget."""
    usable: float
    """Settled ÷ budget."""
    false_refusals: int
    refusals: int
    answers: int
    whole: int
    truncated: int
    unsettled: int
    """Tokens that the provider delivered and nobody settled."""
    statuses: dict[str, int] = field(default_factory=dict)
    curve: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds, tokens delivered, streams open."""
    judged: bool = True

    @property
    def passed(self) -> bool:
        return self.overshoot <= 0.001 and self.usable >= 0.98 and not self.false_refusals


class _Gateway(ChaosGateway):
    """With one backend and one budget."""

    def __init__(self, home: Path, options: Options, provider_port: int) -> None:
        database = Sqlite(home / "ledger.sqlite")
        super().__init__(home, database, provider_port, options.workers)
        (home / "gateway.yaml").write_text(CONFIG.format(port=provider_port, database=database.url))
        usd = f"limit_usd: {options.budget / 10**6:f}"
        limit = usd if options.unit == "usd" else f"limit_tokens: {options.budget}"
        (home / "policies" / f"{TEAM}.yaml").write_text(POLICY.format(team=TEAM, model=MODEL, limit=limit))


async def play(options: Options, home: Path, *, kill: bool) -> Outcome:
    """Raises RuntimeError when the gateway does not start."""
    stage, tasks = Stage(options.budget, options.seed, options.pace_ms / 1000), Tasks()
    loop = asyncio.get_running_loop()
    provider = await loop.create_server(lambda: Provider(stage), "127.0.0.1", 0, backlog=1024)
    gateway = _Gateway(home, options, provider.sockets[0].getsockname()[1])
    try:
        await asyncio.to_thread(gateway.start)
        key = orjson.loads(await asyncio.to_thread(gateway.run, "keys", "create", "--team", TEAM, "--json"))["key"]
        await asyncio.sleep(1.5)  # until every worker knows the key
        clients = Clients(stage, gateway.port, key, options.streams)
        if kill:
            tasks.spawn(_kill(stage, gateway), "kill")
        await clients.run()
        await asyncio.to_thread(gateway.stop)
        await asyncio.to_thread(gateway.run, "ledger", "drain")
        return _judged("thriftgate, a worker killed" if kill else "thriftgate", stage, _settled(gateway))
    finally:
        await tasks.aclose()
        await asyncio.to_thread(gateway.abandon)
        provider.close()


async def _kill(stage: Stage, gateway: ChaosGateway) -> None:
    while stage.delivered < KILL_SHARE * stage.budget:
        await asyncio.sleep(0.005)
    os.kill(gateway.facts()["workers"][0], signal.SIGKILL)


def _settled(gateway: ChaosGateway) -> int:
    """Tokens on the ledger."""
    database = Database(gateway.database.url)
    columns = (ledger.c.input_tokens, ledger.c.output_tokens)
    try:
        with database.read() as connection:
            return sum(sum(row) for row in connection.execute(select(*columns)))
    finally:
        database.close()


def _judged(name: str, stage: Stage, settled: int) -> Outcome:
    false = sum(refusal.headroom >= FALSE_SHARE * stage.budget for refusal in stage.refusals)
    return Outcome(
        name,
        (stage.delivered - stage.budget) / stage.budget,
        settled / stage.budget,
        false,
        len(stage.refusals),
        len(stage.calls),
        sum(call.whole for call in stage.calls),
        stage.statuses.get("truncated", 0),
        stage.delivered - settled,
        stage.statuses,
        stage.curve,
    )


def experiment(options: Options) -> list[Outcome]:
    """Both runs of the gateway, then the naive ways without and with the loss of a third of the streams."""
    outcomes = []
    for kill in (False, True):
        with tempfile.TemporaryDirectory(prefix="tg-budget-", ignore_cleanup_errors=True) as home:
            outcomes.append(uvloop.run(play(options, Path(home), kill=kill)))
    return outcomes + budget_naive.outcomes(options, PROMPT_TOKENS)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests budget", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Options()
    parser.add_argument("--budget", type=int, help=f"tokens; default {usual.budget}")
    parser.add_argument("--streams", type=int, help=f"open at a time; default {usual.streams}")
    parser.add_argument("--workers", type=int, help=f"default {usual.workers}")
    parser.add_argument("--pace-ms", type=float, help=f"between two tokens of a stream; default {usual.pace_ms:g}")
    parser.add_argument("--unit", choices=("tokens", "usd"), help="of the budget: as many tokens, or what they cost")
    parser.add_argument("--seed", type=int, help="default: another each time, printed")
    parser.add_argument("--out", type=Path, default=Path("loadtest-results"), help="for budget.json, .txt and .png")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    given = {name: value for name, value in vars(parser.parse_args(words)).items() if value is not None}
    out, as_json = given.pop("out"), given.pop("json")
    options = Options(**({"seed": random.randrange(10**6)} | given))
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    outcomes = experiment(options)
    budget_table.write(options, outcomes, out, as_json=as_json)
    return int(not all(outcome.passed for outcome in outcomes if outcome.judged))


if __name__ == "__main__":
    sys.exit(main())
