"""Calls backends from the command line. The calls are real, a team pays for them, and their total cost is limited."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counted
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import orjson
from rich.progress import Progress

from gateway.alerts.detect import measure
from gateway.alerts.detect.thresholds import BudgetWindow
from gateway.backends.fleet import Fleet
from gateway.backends.providers.discover import backends_of
from gateway.cli import tables
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.domain.backend import Backend
from gateway.domain.money.windows import window_bounds
from gateway.domain.policy import Organisation, Policy
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Key, Tenant
from gateway.domain.units import pico_to_usd
from gateway.errors import BackendError, BudgetExhausted, GatewayError
from gateway.learning.judges import JUDGES, Blind, Choices, Judge
from gateway.learning.shadow.pairs import Pairs, PairSettlement, Prompt
from gateway.ledger.journal.writer import Journal
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.prices.throughput import measured
from gateway.ledger.store.writer import Writer
from gateway.policy.load import load_policies
from gateway.routing.candidates import may_go_to
from gateway.settings.gateway import Settings


@dataclass(frozen=True, slots=True)
class Caller:
    """Makes calls in the name of one team."""

    fleet: Fleet
    prices: PriceBook
    pairs: Pairs
    settlement: PairSettlement
    policy: Policy

    def backend(self, name: str) -> Backend:
        """The backend `name`. Raises ClickException if there is no such backend, or if the team's data rule forbids
        it."""
        backend = self.fleet.get(name)
        if backend is None:
            known = ", ".join(each.name for each in self.fleet.backends) or "none"
            raise click.ClickException(f"There is no backend {name!r}; known: {known}.")
        if not may_go_to(backend, self.policy.data):
            raise click.ClickException(f"The data rule of team {self.policy.team} keeps prompts from {name}.")
        return backend

    def judge(self, name: str) -> Judge:
        """The judge `name`: one of `JUDGES`, or a backend that compares answers. Raises ClickException."""
        if known := JUDGES.get(name):
            return known()
        backend = self.backend(name)

        async def ask(request: CompletionRequest) -> Choices | None:
            try:
                return (await self.pairs.ask(backend, request, Blind.tokens // 2)).choices
            except BackendError:
                return None

        return Blind(backend.name, ask)


@asynccontextmanager
async def asking(settings: Settings, team: str, limit: int) -> AsyncIterator[Caller]:
    """A caller whose calls together cost at most `limit` pico-dollars. At the end of the context, the rows of the calls
    are written to the ledger. If a gateway runs, the gateway writes the rows. Raises BudgetExhausted."""
    policy, epoch = load_policies(settings.policies, settings.config.ceilings).find(team)
    await asyncio.to_thread(_check_team, settings, team)
    await asyncio.to_thread(_check_budgets, settings, team, policy, limit)
    tenant = Tenant(Key("compare", team), policy, epoch)
    catalogue = PriceBook.of(settings)
    backends = await backends_of(settings.config, None)
    await asyncio.to_thread(_learn_machines, settings, catalogue, backends)
    async with _opened(settings, [catalogue.complete(each) for each in backends], catalogue) as (fleet, journal):
        settlement = PairSettlement(limit, catalogue)
        pairs = Pairs(fleet, Contexts(Counter()), journal, settlement, tenant)
        yield Caller(fleet, catalogue, pairs, settlement, policy)


def _check_team(settings: Settings, team: str) -> None:
    with open_database(settings) as database:
        known_team(database, settings, team)


async def each_of(
    prompts: Sequence[Prompt], work: Callable[[Prompt], Awaitable[None]], concurrent: int, title: str
) -> str:
    """Call `work` for each prompt, `concurrent` prompts at a time, with a progress bar. If the calls ended early
    because the money was spent, returns this reason; otherwise, an empty text."""
    turns, stopped = asyncio.Semaphore(concurrent), ""

    async def one(prompt: Prompt, done: Callable[[], None]) -> None:
        nonlocal stopped
        async with turns:
            if not stopped:
                try:
                    await work(prompt)
                except BudgetExhausted as end:
                    stopped = end.message
            done()

    with Progress(console=tables.console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=len(prompts))
        await asyncio.gather(*(one(prompt, lambda: progress.advance(bar)) for prompt in prompts))
    return stopped


def read_prompts(path: Path, max_tokens: int, temperature: float) -> list[Prompt]:
    """Read the prompts from a file. Raises ClickException, which names the file and the line."""
    found: list[Prompt] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            content = row["messages"] if "messages" in row else [{"role": "user", "content": str(row["prompt"])}]
            expected = row.get("answer")
        except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
            raise click.ClickException(f"{path}:{number}: give one object a line, with prompt or messages.") from None
        body = {"messages": content, "max_tokens": max_tokens, "temperature": temperature}
        prompt = Prompt(f"{row.get('id', number)}", body, None if expected is None else str(expected))
        try:
            prompt.request("any")
        except GatewayError as error:
            raise click.ClickException(f"{path}:{number}: {error.message}") from error
        found.append(prompt)
    for name, count in Counted(prompt.id for prompt in found).items():
        if count > 1:
            raise click.ClickException(f"{path}: {count} lines have the id {name}.")
    return found


@asynccontextmanager
async def _opened(
    settings: Settings, backends: list[Backend], catalogue: PriceBook
) -> AsyncIterator[tuple[Fleet, Journal]]:
    """Open a fleet of `backends` and a journal for its calls. At the end of the context, the journal's rows are written
    to the ledger. If a gateway runs, the gateway writes the rows."""
    fleet = Fleet(backends)
    journal = Journal(settings.paths.journal, prices=catalogue, worker="compare")
    await journal.start()
    try:
        await fleet.open()
        yield fleet, journal
    finally:
        await fleet.aclose()
        await journal.aclose()
        with open_database(settings) as database:
            writer = Writer(settings.paths.journal, database)
            await writer.drain_once()
            await writer.aclose()


def _check_budgets(settings: Settings, team: str, policy: Policy, limit: int) -> None:
    """Raise BudgetExhausted if `limit`, the value of --max-usd, is more than the rest of a hard budget. The rest is
    computed from the ledger."""
    above = settings.config.organisations.get(policy.organisation, Organisation()).budget
    budgets = [each for each in (*policy.budget, *above) if each.hard and each.limit_usd is not None]
    if not budgets:
        return
    now = time.time()
    with open_database(settings) as database, database.read() as connection:
        for budget in budgets:
            if measure.shared(policy, budget):
                window = window_bounds(budget.window, budget.timezone, now)
                left = BudgetWindow(team, budget).limit - measure.used(connection, team, policy, budget, window)
                if limit > left:
                    raise BudgetExhausted(
                        f"The budget {budget.title} of team {team} has {pico_to_usd(max(0, int(left))):f} USD left; "
                        "--max-usd must not exceed it."
                    )


def _learn_machines(settings: Settings, catalogue: PriceBook, backends: list[Backend]) -> None:
    """Load the recently measured throughput of machines with an hourly price, as a running gateway does."""
    machines = [each for each in backends if each.price is not None and each.price.machine_hour_usd]
    if machines:
        with open_database(settings) as database, database.read() as connection:
            catalogue.learn(measured(connection, machines, time.time()))
