"""`thriftgate dev history`: writes a month of invented requests into a data directory of its own, so that users can try
the reports."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson
from sqlalchemy import insert

from gateway.cli.money.repricing import with_writer
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.dashboard.parts import INVENTED_ORGANISATION, MARK
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.traffic import LONG_TOKENS, STEPS
from gateway.ledger.journal import segments
from gateway.ledger.prices.applied import text_of
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.report import teams
from gateway.ledger.rows import FIELDS, Row
from gateway.ledger.store.writer import Writer
from gateway.policy.keys import create
from gateway.settings.files import parse
from gateway.settings.gateway import GatewayConfig, Settings
from gateway.state.sql.database import Database
from gateway.state.sql.tables import hit_checks

SEED = 19
DAY_S = 86_400.0
CHECKED, WRONG = 0.2, 0.02
"""Invented shares. `CHECKED`: semantic hits that were compared with a fresh answer. `WRONG`: wrong answers among
these."""


@dataclass(frozen=True, slots=True)
class Team:
    """The way in which one invented team uses the gateway."""

    name: str
    a_day: int
    """Requests on a weekday."""
    budget_usd: int
    input_tokens: int
    output_tokens: int
    cached: float
    """The share of requests that the cache answers."""
    easy: float
    """The share that goes to the cheap model, among the requests that the cache does not answer."""
    exhausted: str = "refuse"
    """The policy's `on_exhausted`. Only a budget with `warn` may be exceeded by the invented spend."""


Models = tuple[tuple[Backend, Price | None], tuple[Backend, Price | None]]
"""The cheap backend and the strong one, each with its price."""
TEAMS = (
    Team("demo-search", 120, 3, 700, 180, 0.35, 0.75),
    Team("demo-support", 90, 8, 1_800, 320, 0.20, 0.55, "warn"),
    Team("demo-agents", 25, 60, 24_000, 700, 0.02, 0.25),
)
GATEWAY = """\
# Written by `thriftgate dev history`. The first two backends only give the invented requests a price: no server is at
# their address, and only their own names lead to them. The simulated backend answers all other requests.
backends:
  - name: gpt-4o-mini
    kind: openai
    base_url: http://127.0.0.1:9/v1
    model: gpt-4o-mini
    location: hosted
    only_named: true
    price: {input: 0.15, output: 0.60}
  - name: claude-sonnet-4-6
    kind: openai
    base_url: http://127.0.0.1:9/v1
    model: claude-sonnet-4-6
    location: hosted
    only_named: true
    price: {input: 3, output: 15}
  - {name: simulated-large, kind: simulated, model: simulated-large, strength: large}
"""


@click.command(short_help="Write a month of invented requests into a data directory of its own.")
@common
@click.option("--days", type=click.IntRange(1, 365), default=30, show_default=True, help="Days until now.")
@click.option("--key/--no-key", default=True, show_default=True, help="Create a key for the page.")
def history(context: Context, days: int, key: bool) -> None:
    """Write invented requests of the last days, with gateway.yaml and policies of their teams, into --data-dir.

    The requests were never sent and cost nothing. They are marked: the names of their teams begin with demo-, and each
    has the tag demo=history. A ledger with requests of other teams is refused, so that nothing invented is ever mixed
    with spend. A key for the page is printed; `serve --demo` with TOUR=0 prints one, too.

    \b
    thriftgate dev history --days 30 --data-dir .demo
    """
    if context.data_dir is None:
        raise click.UsageError("Name a directory of its own with --data-dir, such as .demo.")
    settings = context.settings()
    with open_database(settings) as database:
        with database.read() as connection:
            present = teams(connection)
        if others := sorted(team for team in present if not team.startswith(MARK)):
            raise click.ClickException(
                f"{settings.paths.data} has requests of {', '.join(others)}; give another --data-dir."
            )
        secret = page_key(database) if key else None
    config = parse(GATEWAY, GatewayConfig, "gateway.yaml")
    invented = [] if present else list(rows(days, time.time(), config))
    count = _write(settings, invented) if invented else 0
    if invented:
        with open_database(settings) as database, database.begin() as connection:
            connection.execute(insert(hit_checks), checks(invented))
    folder = _files(settings)
    text = f"{count:,} invented requests of {', '.join(team.name for team in TEAMS)} are in {settings.paths.data}."
    if present:
        text = f"{settings.paths.data} has its demo history already."
    values = {"rows": count, "teams": [team.name for team in TEAMS], "policies": str(folder)}
    if secret is not None:
        values["key"], text = secret, f"{text}\nKey for the page, valid for a day: {secret}"
    context.print(values, text)


def page_key(database: Database) -> str:
    """Create a key that sees all invented teams on the page, and may ask as the first of them."""
    secret, _ = create(
        database, TEAMS[0].name, name="demo history", scopes=("inference", "usage", "admin"),
        expires_at=time.time() + DAY_S,
    )  # fmt: skip
    return secret


def has_history(settings: Settings) -> bool:
    """Return whether the ledger of `settings` has the invented requests."""
    with open_database(settings) as database, database.read() as connection:
        return TEAMS[0].name in teams(connection)


def rows(days: int, now: float, config: GatewayConfig) -> Iterator[Row]:
    """The rows of the invented requests, oldest first. The same arguments always give the same rows."""
    draw = random.Random(SEED)  # noqa: S311 - invented, not secret
    prices = PriceBook.load()
    cheap, strong, _ = ((each, prices.price(each)) for each in config.backends or ())
    found = [row for team in TEAMS for row in _of_team(team, days, now, (cheap, strong), draw)]
    return iter(sorted(found, key=lambda row: row.at))


def _of_team(team: Team, days: int, now: float, models: Models, draw: random.Random) -> Iterator[Row]:
    for day in range(days):
        begin = now - (days - day) * DAY_S
        weekend = time.gmtime(begin).tm_wday >= 5
        growth = 0.8 + 0.4 * day / days
        for number in range(round(team.a_day * growth * (0.25 if weekend else 1) * draw.uniform(0.85, 1.15))):
            at = begin + DAY_S * draw.betavariate(3, 3)
            yield _row(team, f"req_demo_{team.name}_{day}_{number}", at, models, draw)


def _row(team: Team, request: str, at: float, models: Models, draw: random.Random) -> Row:
    usage = Usage(
        round(draw.lognormvariate(math.log(team.input_tokens), 0.5)),
        output_tokens=round(draw.lognormvariate(math.log(team.output_tokens), 0.5)),
    )
    easy = draw.random() < team.easy
    backend, price = models[0 if easy else 1]
    assert price is not None, "gateway.yaml above has its price"
    cost = price.cost(usage)
    person = draw.randrange(13)  # 12 end users; the rest without one
    row = Row(
        f"{request}-1", request, 1, at, INVENTED_ORGANISATION, team.name, f"key_{team.name}", dialect="openai_chat",
        cache="miss", model_asked="auto", outcome="ok", status=200, input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens, price_source="demo history", prices=text_of(price),
        traffic_class=f"en/{'text' if usage.input_tokens < LONG_TOKENS else 'long'}/{draw.choice(STEPS[:2])}",
        difficulty=round(draw.uniform(0.05, 0.4) if easy else draw.uniform(0.3, 0.95), 3),
        tags=orjson.dumps({"demo": "history"}).decode(), end_user=f"eu_demo_{person:02d}" if person else "",
        session=f"demo-{time.strftime('%m%d', time.gmtime(at))}-{person:02d}" if person else "",
    )  # fmt: skip
    if draw.random() < team.cached:
        kind = "exact" if draw.random() < 0.6 else "semantic"
        return row._replace(
            id=f"{request}-0", attempt=0, cache=kind, cost_pico=0, saved_pico=cost, duration_ms=draw.uniform(2, 30),
            difficulty=None,
        )  # fmt: skip
    row = row._replace(
        backend=backend.name, model=backend.model, tier=backend.tier, cost_pico=cost,
        first_byte_ms=draw.uniform(150, 900), duration_ms=draw.uniform(600, 9_000),
    )  # fmt: skip
    if draw.random() < 0.015:
        return row._replace(outcome="failed", status=503, error="backend_unavailable", cost_pico=0, output_tokens=0)
    return row


def checks(invented: Sequence[Row]) -> list[dict[str, Any]]:
    """Invented comparisons of cached answers with fresh answers, for each team and day. Every fifth semantic hit of
    `invented` was compared."""
    draw = random.Random(SEED)  # noqa: S311 - invented, not secret
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in invented:
        where = row.team, int(row.at // DAY_S * DAY_S)
        none = dict.fromkeys((column.name for column in hit_checks.c), 0)
        counts = found.setdefault(where, {**none, "team": where[0], "at": where[1]})
        hit = row.cache == "semantic"
        checked = hit and draw.random() < CHECKED
        wrong = checked and draw.random() < WRONG
        counts["lookups"] += row.cache != "exact"
        counts["hits"] += hit
        counts["checked"] += checked
        counts["wrong"] += wrong
        counts["weight"] += checked / CHECKED
        counts["weight_squared"] += checked / CHECKED**2
        counts["weight_wrong"] += wrong / CHECKED
    return list(found.values())


def _write(settings: Settings, invented: list[Row]) -> int:
    """Write the rows to a journal, and from there into the ledger's chain, as a worker of a gateway does."""
    directory = settings.paths.journal
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = segments.create(segments.Segment.at(directory, segments.new_lane("demo-history"), 1), FIELDS)
    with open(fd, "ab", closefd=False) as file:
        for row in invented:
            file.write(segments.encode({"close": tuple(row)}))
    segments.retire(fd)
    return with_writer(settings, None, Writer.drain_once)


def _files(settings: Settings) -> Path:
    """Write gateway.yaml and the policies. Returns the folder of the policies."""
    (settings.paths.data / "gateway.yaml").write_text(GATEWAY, encoding="utf-8")
    folder = settings.paths.data / "policies"
    folder.mkdir(mode=0o700, exist_ok=True)
    for team in TEAMS:
        (folder / f"{team.name}.yaml").write_text(
            "# Written by `thriftgate dev history`: an invented team.\n"
            f"team: {team.name}\norganisation: {INVENTED_ORGANISATION}\nmodels:\n  auto: {{quality: 95%}}\n"
            f"budget: {{limit_usd: {team.budget_usd}, period: month, alerts: [50%, 80%, 100%], "
            f"on_exhausted: {team.exhausted}}}\n",
            encoding="utf-8",
        )
    return folder
