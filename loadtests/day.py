"""The mixed day: what does the gateway save on a day of mixed traffic, and at which quality?

`python -m loadtests day` replays a day through a running gateway, once for each arm. Scripted providers answer with
recorded answers of real models, and bill by the rules of providers' prompt caches. Without the folders of recorded data
a small set of our own is used, whose outcomes are drawn; it shows the mechanisms only.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop
import yaml
from sqlalchemy import select

from gateway.context.bill.price_file import load_prices
from gateway.domain.money.price import Price
from gateway.policy.keys import create
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from loadtests.day_clients import Answered, Clients, agent_body
from loadtests.day_gateway import ALL, ALONE, ARMS, Arm, DayGateway, teams_of
from loadtests.day_plan import Asked, Day, Folders, Source, drawn
from loadtests.day_provider import DayProvider, Speed, key_of
from loadtests.day_questions import Question
from loadtests.day_table import Row, Spent, draw, hull_usd, pooled, row_of, table

MIXTURE = Path(__file__).parent / "day_mixture.yaml"
MUST_SAVE, MUST_KEEP = 0.4, 0.99
"""The bar: dollars saved by all features together, at least at this share of the references' quality where judged."""
WHOLE, JUDGED, HEADLINE, ALL_ON = "all strata", "judged strata", "agents and judged", ALL.name


@dataclass(slots=True)
class Setting:
    """What all arms of a run share."""

    mixture: Mapping[str, Any]
    prices: Mapping[str, Price]
    folders: Folders
    day: Day
    before: Day
    """A part of another day, of the other split."""
    plans: Sequence[Path]
    """One for each pool with recorded outcomes, fitted on the other split."""


@dataclass(slots=True)
class Outcome:
    """One arm. `billed_usd`: by the providers' own meter, with what was served before the day. `booked_usd`: the same
    by the ledger."""

    arm: Arm
    answered: list[Answered]
    spent: Mapping[str, Spent]
    """By team."""
    billed_usd: float
    booked_usd: float


async def play(setting: Setting, arm: Arm, home: Path) -> Outcome:
    """Serve the day with one arm. Raises RuntimeError if the gateway does not start."""
    mixture = setting.mixture
    speeds = {model: speed_of(mixture, model) for model in setting.prices}
    questions = {_key(one): one for day in (setting.before, setting.day) for one in day.questions if not one.texts}
    provider = DayProvider(questions, setting.prices, speeds)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, backlog=1024, limit=2**26)
    port = server.sockets[0].getsockname()[1]
    gateway = DayGateway(home, arm, mixture, setting.prices, port, setting.plans)
    try:
        await asyncio.to_thread(gateway.start)
        keys = await asyncio.to_thread(new_keys, gateway, teams_of(mixture))
        url = f"http://127.0.0.1:{gateway.port}"
        if arm.warm:
            await Clients(url, keys, mixture["pools"]).run(setting.before, mixture["seconds"] * mixture["warm_up"])
            await asyncio.sleep(2)
        began = time.time()
        clients = Clients(url, keys, mixture["pools"])
        await clients.run(setting.day, mixture["seconds"])
        await asyncio.sleep(2)  # comparisons in the background may still run
        await asyncio.to_thread(gateway.stop)
        await asyncio.to_thread(gateway.run, "ledger", "drain")
        billed = sum(call.cost_pico for call in provider.calls) / 1e12
        booked = sum(spent.usd for spent in spent_since(gateway, 0.0).values())
        return Outcome(arm, clients.answered, spent_since(gateway, began), billed, booked)
    finally:
        await asyncio.to_thread(gateway.abandon)
        server.close()


def new_keys(gateway: DayGateway, teams: Iterable[str]) -> dict[str, str]:
    """Team → a new API key."""
    database = Database(gateway.database.url)
    try:
        return {team: create(database, team)[0] for team in teams}
    finally:
        database.close()


def speed_of(mixture: Mapping[str, Any], model: str) -> Speed:
    size = "small" if model in mixture["small"] else "large"
    return Speed(mixture["first_byte_ms"][size] / 1000, mixture["tokens_per_s"][size])


def _key(question: Question) -> str:
    if question.session:
        return key_of(agent_body(question, ""))
    return key_of({"messages": question.messages})


def spent_since(gateway: DayGateway, began: float) -> dict[str, Spent]:
    """Team → sums of the ledger's rows of requests that began after `began` (Unix seconds)."""
    database = Database(gateway.database.url)
    columns = ledger.c.team, ledger.c.kind, ledger.c.cost_pico, ledger.c.above_ceiling, ledger.c.attempt
    try:
        with database.read() as connection:
            rows = connection.execute(select(*columns).where(ledger.c.at >= began)).all()
    finally:
        database.close()
    return sums_of([tuple(row) for row in rows])


def sums_of(rows: Iterable[tuple[str, str, int | None, bool, int]]) -> dict[str, Spent]:
    """`rows`: (team, kind, pico-dollars, whether above the ceiling, number of the call in its request)."""
    found: dict[str, Spent] = defaultdict(Spent)
    for team, kind, cost, above, number in rows:
        usd, first, compares = (cost or 0) / 1e12, number == 1, kind == "shadow"
        above = above and not compares
        one = Spent(usd, usd * compares, above and first, above and not first)
        found[team] = Spent(*map(sum, zip(astuple(found[team]), astuple(one), strict=True)))
    return found


def rows_of(setting: Setting, outcome: Outcome) -> list[Row]:
    """A row for each stratum, and sums: of the judged strata, of these and agents (the headline), and of all."""
    meanings = {one.id: one.meaning for day in (setting.before, setting.day) for one in day.questions}
    by: dict[str, list[Answered]] = defaultdict(list)
    for one in outcome.answered:
        by[one.asked.stratum].append(one)
    strata, judged = setting.mixture["strata"], setting.mixture["judged"]
    parts = {**{name: [name] for name in strata}, JUDGED: judged, HEADLINE: ["agents", *judged], WHOLE: list(strata)}
    found = []
    for name, members in parts.items():
        answered = [one for member in members for one in by[member]]
        teams = [astuple(spent) for team, spent in outcome.spent.items() if team.partition(".")[0] in members]
        spent = Spent(*map(sum, zip(*teams, strict=True)))
        found.append(row_of(outcome.arm.name, name, answered, spent, meanings))
    return found


def dearer(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What should not happen: first calls above the ceiling, and teams that paid more than in the first arm (arm and
    team → share that they paid more). `fallbacks_above`: number of later calls above the ceiling, after a failure or a
    weak answer. `team_days`: number of compared teams."""
    base, others = outcomes[0].spent, outcomes[1:]
    more = {
        f"{one.arm.name}: {team}": round(spent.usd / base[team].usd - 1, 5)
        for one in others
        for team, spent in one.spent.items()
        if round((spent.usd - base[team].usd) * 1e12) > 0  # sums of equal costs in another order differ less
    }
    spent = [each for one in outcomes for each in one.spent.values()]
    first, later = sum(one.first_above for one in spent), sum(one.fallbacks_above for one in spent)
    days = sum(len(one.spent) for one in others)
    return {"first_above": first, "fallbacks_above": later, "team_days": days, "dearer": more}


def hull_of(setting: Setting, outcome: Outcome) -> float:
    """Dollars of the hull for the judged strata, at the quality that the arm reached in each pool."""
    meanings = {one.id: one.meaning for day in (setting.before, setting.day) for one in day.questions}
    pools: dict[str, list[Answered]] = defaultdict(list)
    for one in outcome.answered:
        if one.asked.stratum in setting.mixture["judged"]:
            pools[one.asked.question.pool].append(one)
    usd = 0.0
    for pool, answered in pools.items():
        reached = row_of("", pool, answered, Spent(), meanings).quality or 0.0
        asked: list[Asked] = [one.asked for one in answered]
        usd += hull_usd(asked, setting.mixture["pools"][pool], setting.prices, reached)[0]
    return usd


def fit(source: Source, pool: str, mixture: Mapping[str, Any], home: Path) -> Path:
    """A plan for the models of `pool`, fitted on the outcomes of `source`. A plan of this name that lies in `home` is
    used again. Raises CalledProcessError."""
    models = mixture["pools"][pool]
    lines = [
        orjson.dumps(
            {"prompt": one.messages[-1]["content"], "q": one.quality, "out_tok": one.output, "ans": one.answers}
        )
        for one in source.pools[pool]
    ]
    name = f"{pool}-{source.split}"
    data, prices, plan = (home / f"{name}-{part}" for part in ("outcomes.jsonl", "pool.json", "plan.json"))
    if plan.exists():
        return plan
    data.write_bytes(b"\n".join(lines) + b"\n")
    prices.write_bytes(orjson.dumps({model: mixture["prices"][model] for model in models}))
    words = ["router", "fit", "--data", data.name, "--pool", prices.name, "--out", plan.name]
    subprocess.run([sys.executable, "-m", "gateway.cli.main", *words], cwd=home, check=True, capture_output=True)
    return plan


def prices_of(mixture: Mapping[str, Any], home: Path) -> dict[str, Price]:
    """Model → price, with the usual prices of cached tokens. `home`: folder for the file that is read."""
    listed = {model: {"input": price[0], "output": price[1]} for model, price in mixture["prices"].items()}
    (home / "prices.json").write_bytes(orjson.dumps(listed))
    return load_prices(home / "prices.json")


def prepared(folders: Folders, mixture: dict[str, Any], seed: int, split: int, home: Path, plans: Path) -> Setting:
    """Draw the day, and what comes before it. `plans`: folder of the plans. Raises OSError, CalledProcessError."""
    prices = prices_of(mixture, home)
    source, other = (Source(folders, mixture, which) for which in (split, 1 - split))
    day = drawn(source, mixture, prices, seed, folders)
    before = drawn(other, mixture, prices, seed + 1000, folders, mixture["warm_up"])
    return Setting(mixture, prices, folders, day, before, [fit(other, pool, mixture, plans) for pool in other.pools])


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests day", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    for name, what in (("routing", "prompts with recorded outcomes"), ("context", "sessions and documents"),
                       ("pairs", "pairs of questions (dev_es.jsonl, dev_pt.jsonl)"),
                       ("traces", "arrival times")):  # fmt: skip
        parser.add_argument(f"--{name}", type=Path, help=f"folder with {what}")
    parser.add_argument("--seed", type=int, default=1, help="draws the day; default 1")
    parser.add_argument("--split", type=int, choices=(0, 1), default=0, help="half of the data; the other is fitted on")
    parser.add_argument("--alone", action="store_true", help="also each feature alone")
    parser.add_argument("--arms", nargs="+", choices=[arm.name for arm in ARMS[1:]], default=[], metavar="ARM",
                        help="which arms beside the reference; default: all on, cold start")  # fmt: skip
    parser.add_argument("--usd", type=float, help="dollars of the day on the references; default: the mixture's")
    parser.add_argument("--plans", type=Path, help="folder that keeps the fitted plans for other runs with these data")
    parser.add_argument("--out", type=Path, default=Path("loadtest-results"), help="folder for day.*")
    parser.add_argument("--pool", type=Path, nargs="+", metavar="DAY.json", help="run nothing; sum up these runs")
    given = parser.parse_args(words)
    mixture = yaml.safe_load(MIXTURE.read_text(encoding="utf-8"))
    if given.pool:
        rows = pooled([[Row(**row) for row in orjson.loads(path.read_bytes())["rows"]] for path in given.pool])
        facts = summed([orjson.loads(path.read_bytes()) for path in given.pool])
        text = f"{len(given.pool)} runs.\n\n{table(rows)}\n\n{in_words(facts)}\n\n{verdict(rows)}"
        write(given.out, text, rows, list(mixture["strata"]), {"runs": len(given.pool), **facts})
        print(text)
        return int(bool(missed(rows)))
    if given.usd:  # as many requests per second as on the mixture's day
        mixture = {**mixture, "usd": given.usd, "seconds": mixture["seconds"] * given.usd / mixture["usd"]}
    folders = Folders(given.routing, given.context, given.pairs, given.traces)
    with tempfile.TemporaryDirectory(prefix="tg-day-", ignore_cleanup_errors=True) as folder:
        plans = given.plans or Path(folder)
        plans.mkdir(parents=True, exist_ok=True)
        setting = prepared(folders, mixture, given.seed, given.split, Path(folder), plans.absolute())
        outcomes = []
        arms = [arm for arm in ARMS if not given.arms or arm.name in (ARMS[0].name, *given.arms)]
        for arm in (*arms, *(ALONE if given.alone else ())):
            home = Path(folder) / arm.name.replace(" ", "-")
            home.mkdir()
            outcomes.append(uvloop.run(play(setting, arm, home)))
            print(arm.name, f"{outcomes[-1].billed_usd:.3f} USD", file=sys.stderr, flush=True)
    rows = [row for outcome in outcomes for row in rows_of(setting, outcome)]
    facts = dearer(outcomes)
    text = report(setting, outcomes, rows, given)
    write(given.out, text, rows, list(mixture["strata"]), {"seed": given.seed, "split": given.split, **facts})
    print(text)
    return int(bool(missed(rows)))


def missed(rows: Sequence[Row]) -> list[str]:
    """What the arm with all features misses, in words; empty if it meets the bar."""
    found = {(row.arm, row.stratum): row for row in rows}
    base, ours = ARMS[0].name, ALL_ON
    saved = 1 - found[ours, HEADLINE].usd / found[base, HEADLINE].usd
    kept = (found[ours, JUDGED].quality or 0) / (found[base, JUDGED].quality or 1)
    slower = found[ours, HEADLINE].p50_ms / found[base, HEADLINE].p50_ms
    return [
        *([f"saved {saved:.1%}, wanted {MUST_SAVE:.0%}"] if saved < MUST_SAVE else []),
        *([f"kept {kept:.2%} of the quality, wanted {MUST_KEEP:.0%}"] if kept < MUST_KEEP else []),
        *([f"the first byte takes {slower:.2f} times as long at the median"] if slower > 1 else []),
    ]


def report(setting: Setting, outcomes: Sequence[Outcome], rows: Sequence[Row], given: argparse.Namespace) -> str:
    """The table, the hull and the bar."""
    data = "recorded data" if given.routing else "our own small set; its outcomes are drawn, not recorded"
    found = {(row.arm, row.stratum): row for row in rows}
    lines = [f"Seed {given.seed}, split {given.split}, {data}.", "", table(rows), ""]
    for outcome in outcomes:
        judged, hull = found[outcome.arm.name, JUDGED], hull_of(setting, outcome)
        lines.append(
            f"{outcome.arm.name}: judged strata {judged.usd:.3f} USD, the hull of single models {hull:.3f} USD at the "
            f"same quality ({100 * (1 - judged.usd / hull):+.1f} % saved); with what was served before the day, the "
            f"providers billed {outcome.billed_usd:.6f} USD, and the ledger has {outcome.booked_usd:.6f}."
        )
    return "\n".join([*lines, "", in_words(dearer(outcomes)), "", verdict(rows)])


def summed(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The results of `dearer` of several runs in one."""
    found = {
        f"seed {run['seed']}, split {run['split']}, {name}": by for run in runs for name, by in run["dearer"].items()
    }
    counts = {name: sum(run[name] for run in runs) for name in ("first_above", "fallbacks_above", "team_days")}
    return {**counts, "dearer": found}


def in_words(facts: Mapping[str, Any]) -> str:
    """The result of `dearer` as sentences."""
    more = "; ".join(f"{name} by {100 * by:.2f} %" for name, by in facts["dearer"].items()) or "none"
    return (
        f"First calls that were expected to be dearer than their ceiling: {facts['first_above']}; such calls after a "
        f"failure or a weak answer: {facts['fallbacks_above']}. Team-days that were dearer than with the references: "
        f"{len(facts['dearer'])} of {facts['team_days']} ({more})."
    )


def verdict(rows: Sequence[Row]) -> str:
    why = missed(rows)
    return "The bar is met." if not why else "The bar is missed: " + "; ".join(why) + "."


def write(out: Path, text: str, rows: Sequence[Row], strata: list[str], facts: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    values = {**facts, "rows": [asdict(row) for row in rows]}
    (out / "day.json").write_bytes(orjson.dumps(values, option=orjson.OPT_INDENT_2))
    (out / "day.md").write_text(text + "\n", encoding="utf-8")
    try:
        draw(rows, strata, JUDGED, out / "day.svg")
    except ImportError:
        print("No plot: matplotlib is not installed (pip install 'thriftgate[loadtest]').", file=sys.stderr)
