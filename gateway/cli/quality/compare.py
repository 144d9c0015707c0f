"""`thriftgate compare`: shows for which prompts one backend is as good as another, and at what price and speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import click
from rich.markup import escape

from gateway.cli import tables
from gateway.cli.options import Context, Renamed, common
from gateway.cli.quality.asking import asking, each_of, read_prompts
from gateway.domain.units import parse_usd, pico_to_usd, usd_to_pico
from gateway.errors import GatewayError
from gateway.learning.judges import Agreement
from gateway.learning.shadow.pairs import Pair, Prompt
from gateway.learning.shadow.tally import Interval, Pace, Tally, tally
from gateway.ledger.reports.formats import cents_of
from gateway.routing.difficulty.grader import Grader
from gateway.settings.gateway import Settings


@click.command(short_help="Ask two backends the same, and compare their answers.")
@common
@click.argument("a")
@click.argument("b")
@click.option(
    "--prompts", required=True, type=click.Path(path_type=Path), help="JSON lines {prompt | messages, answer?, id?}."
)
@click.option(
    "--quality",
    type=click.FloatRange(0, 1),
    default=0.95,
    show_default=True,
    help="Least share of prompts on which B must be as good as A.",
)
@click.option(
    "--judge",
    default=Agreement.name,
    show_default=True,
    help="agreement, exact, or the name of a backend, which compares the answers without their sources.",
)
@click.option("--max-usd", default="1", show_default=True, help="Most that all calls together may cost, in USD.")
@click.option(
    "--max-tokens", type=click.IntRange(1), default=512, show_default=True, help="Maximum tokens of each answer."
)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="Sent with each prompt.")
@click.option(
    "--concurrency",
    "concurrent",
    cls=Renamed,
    former="--concurrent",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Prompts at a time.",
)
@click.option(
    "--team", default="default", show_default=True, help="The team that pays for the calls. Its data rule applies."
)
def compare(
    context: Context, a: str, b: str, prompts: Path, quality: float, judge: str, max_usd: str, max_tokens: int,
    temperature: float, concurrent: int, team: str,
) -> None:  # fmt: skip
    """Send the same prompts to backends A and B, and say whether B could replace A.

    A and B can be, for example, a model with full precision and its quantised version, a teacher and its distilled
    student, or an API and your machine. Every call is real: it costs money and is on the ledger under --team (kind
    shadow). Calls stop at --max-usd.

    \b
    thriftgate compare large small --prompts prompts.jsonl --max-usd 2
    {"id": 1, "prompt": "How much is 17 * 3?", "answer": "51"}     answer: optional, the right one
    """
    settings = context.settings(keys=True)
    try:
        limit = usd_to_pico(parse_usd(max_usd))
        asked = read_prompts(prompts, max_tokens, temperature)
        found, spent, stopped = asyncio.run(_run(settings, (a, b), asked, judge, limit, max_tokens, concurrent, team))
    except ValueError as error:
        raise click.UsageError(f"--max-usd {error}") from error
    except GatewayError as error:
        raise click.ClickException(error.message) from error
    if not found:
        raise click.ClickException(stopped or "There are no prompts to compare.")
    hard = _difficulties(found)
    summary = tally(found, lambda pair: hard[pair.prompt.id], quality)
    values = {
        "a": a,
        "b": b,
        "quality": quality,
        "judge": judge,
        "spent_usd": f"{pico_to_usd(spent):f}",
        "stopped": stopped or None,
        **asdict(summary),
        "pairs": [_row(pair, hard[pair.prompt.id]) for pair in found],
    }
    context.print(values, lambda: _show(summary, a, b, quality, spent, stopped, team))


async def _run(
    settings: Settings, names: tuple[str, str], prompts: list[Prompt], judge: str, limit: int, most: int,
    concurrent: int, team: str,
) -> tuple[list[Pair], int, str]:  # fmt: skip
    """Compare the backends. Returns three values: the compared pairs, their cost in pico-dollars, and the reason why
    the comparison ended early (empty if it did not)."""
    found: list[Pair] = []
    async with asking(settings, team, limit) as caller:
        a, b = (caller.backend(name) for name in names)
        judging = caller.judge(judge)

        async def one(prompt: Prompt) -> None:
            found.append(await caller.pairs.compare(prompt, a, b, judging, most))

        stopped = await each_of(prompts, one, concurrent, f"{a.name} and {b.name}")
        places = {prompt.id: place for place, prompt in enumerate(prompts)}
        found.sort(key=lambda pair: places[pair.prompt.id])
        return found, caller.settlement.spent, stopped


def _difficulties(pairs: list[Pair]) -> dict[str, float | None]:
    """The difficulty of each prompt: prompt id → difficulty; None for a prompt that the grader cannot judge."""
    grader, found = Grader.load(), {}
    for pair in pairs:
        request = pair.prompt.request("any")
        grade = grader.grade_turns(request.turns, request.needs)
        found[pair.prompt.id] = None if grade.abstained else grade.difficulty
    return found


def _row(pair: Pair, difficulty: float | None) -> dict[str, object]:
    return {
        "id": pair.prompt.id,
        "difficulty": difficulty,
        "agreed": pair.agreed,
        "right_a": pair.right[0],
        "right_b": pair.right[1],
        "error_a": pair.a.error or None,
        "error_b": pair.b.error or None,
    }


def _show(summary: Tally, a: str, b: str, quality: float, spent: int, stopped: str, team: str) -> None:
    console = tables.console(highlight=False)
    table = tables.Table("", *tables.numbers(a, b))
    rows: list[tuple[str, Callable[[Pace], str]]] = [
        ("answers", lambda one: f"{one.answers}" + (f", {one.failed} failed" if one.failed else "")),
        ("right answers", lambda one: _interval(one.right)),
        ("tokens per second", lambda one: _number(one.tokens_per_second, 1)),
        ("seconds, median call", lambda one: _number(one.seconds, 2)),
        ("USD per 1M tokens of this mix", lambda one: _usd(one.usd_per_million)),
        ("USD in total", lambda one: _usd(one.usd)),
    ]
    for title, of in rows:
        table.add_row(title, of(summary.a), of(summary.b))
    console.print(table)
    console.print(
        f"{b} as good as {a}: {_interval(summary.as_good)}, {summary.judged} of {summary.asked} could be judged"
    )
    if summary.better is not None:
        console.print(f"right answers, {b} minus {a}: {_interval(summary.better)}")
    figures = tables.numbers("share", f"{b} as good")
    parts = tables.Table("difficulty", *figures, *tables.prose(f"adequate at {quality:g}"))
    for one in summary.bins:
        span = "outside the grader" if one.low is None else f"{one.low:.2f} – {one.high:.2f}"
        parts.add_row(span, f"{one.part:.0%}", _interval(one.as_good), one.adequate)
    if summary.bins:
        console.print(parts)
    if summary.adequate_below is not None:
        upto = f"[bold]{escape(b)} is adequate up to difficulty {summary.adequate_below:.2f}[/]"
        console.print(f"{upto}: {summary.adequate_share:.0%}", markup=True)
    else:
        console.print(f"{b} is not shown to be adequate at {quality:g} for any difficulty.")
    if stopped:
        console.print(f"Ended early: {stopped}")
    console.print(f"{pico_to_usd(spent):f} USD, on the ledger under team {team} (kind shadow).")


def _interval(one: Interval | None) -> str:
    return "–" if one is None else f"{one.mean:.3f} ({one.low:.3f} – {one.high:.3f})"


def _usd(amount: float | None) -> str:
    return "unknown" if amount is None else cents_of(amount)


def _number(value: float | Decimal | None, digits: int) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}"
