"""`thriftgate router`: fits strategies to measured outcomes, replays them, shows the plan in use, and measures the
grader."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.options import Context, common, old_name
from gateway.cli.quality import router_tables
from gateway.cli.quality.grade import ARTEFACT, FILE
from gateway.cli.quality.learning import learned, plans_on_trial, rollback, trial
from gateway.cli.quality.refit import refit
from gateway.routing.difficulty.grader import Grader
from gateway.routing.difficulty.weights_file import ArtefactError
from gateway.routing.fit.evaluation import DataError, evaluate
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_grader import grader_of

PATH = click.Path(path_type=Path, dir_okay=False)
POOL = click.option(
    "--pool",
    type=PATH,
    required=True,
    help='One JSON object {"model": [USD per 1M input tokens, USD per 1M output tokens]}.',
)


@click.group()
def router() -> None:
    """Fit strategies to your own outcomes, replay them, and measure the difficulty grader."""


@router.group(short_help="Show the plan, put another on trial, roll back.")
def plan() -> None:
    """Show the plan in use, put another on trial, or return to the previous one."""


plan.add_command(trial)
plan.add_command(rollback)
router.add_command(refit)
router.add_command(old_name(learned, "learned"))
router.add_command(old_name(trial, "trial"))
router.add_command(old_name(rollback, "rollback"))


@router.command("fit", short_help="Fit strategies to measured outcomes.")
@common
@click.argument("more", nargs=-1, type=PATH)
@click.option(
    "--data", "data", multiple=True, required=True, type=PATH, help="Outcomes; repeatable, or give several files."
)
@POOL
@click.option("--out", required=True, type=PATH, help="File to write the plan to.")
@click.option("--plot", "plots", multiple=True, type=click.Path(path_type=Path), help="Also plot as .png or .svg.")
@click.option("--seed", default=0, show_default=True, help="Seed for the random choice of folds and bootstrap samples.")
def fit_router(
    context: Context,
    data: tuple[Path, ...],
    more: tuple[Path, ...],
    pool: Path,
    out: Path,
    plots: tuple[Path, ...],
    seed: int,
) -> None:
    """Find the cheapest strategy for each quality, and write the plan for serving.

    \b
    thriftgate router fit --data outcomes.jsonl.gz --pool pool.json --out plan.json --plot plan.svg
    Outcomes: JSON lines {"prompt", "q": {model: 0..1}, "out_tok": {model: tokens}, "ans": {model: final answer}}.
    """
    from gateway.routing.fit import report
    from gateway.routing.fit.outcomes import read_pool
    from gateway.routing.fit.plan import fit_plan
    from gateway.routing.strategy.plan_file import save_plan

    try:
        plan, frontier, outcomes = fit_plan((*data, *more), read_pool(pool), _progress, seed=seed)
        save_plan(plan, out)
        shown = report.report(frontier, outcomes, seed=seed)
        for path in plots:
            report.plot(shown, str(path))
    except (DataError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    except ImportError as error:
        raise click.ClickException("plots need matplotlib: pip install 'thriftgate[loadtest]'") from error
    chance = f"any model, each as likely: quality {shown.random[0]:.4f} for {shown.random[1] * 1000:.4f}"
    context.print(shown.values(), lambda: _print(router_tables.of_fit(shown), chance))


def _print(table: tables.Table, *sentences: str) -> None:
    tables.console(highlight=False).print(table)
    tables.sentences(*sentences)


def _progress(line: str) -> None:
    echo(line, err=True)


@router.command("replay", short_help="Replay recorded outcomes through the decision.")
@common
@click.option("--data", type=PATH, required=True, help="Outcomes, as for fit.")
@POOL
@click.option(
    "--quality",
    type=click.FloatRange(0, 1),
    required=True,
    help="Target for the mean quality of all prompts in the file, from 0 to 1.",
)
@click.option("--artefact", type=FILE, help="A plan made by fit; default: the packaged prior.")
def replay_router(context: Context, data: Path, pool: Path, quality: float, artefact: Path | None) -> None:
    """Replay recorded outcomes through the serving decision.

    The decision sees an answer only after the cost of the answer's call has been counted.

    Prints JSON lines {"id","called","quality","usd","adequacy"}.
    """
    from gateway.routing.fit.outcomes import read_outcomes, read_pool
    from gateway.routing.fit.prior import prior
    from gateway.routing.fit.replay import replay
    from gateway.routing.strategy.plan_file import load_plan

    try:
        prices = read_pool(pool)
        plan = load_plan(artefact) if artefact else prior(prices)
        outcomes = read_outcomes([data], prices)
    except (DataError, ArtefactError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for each in replay(outcomes, plan, quality):
        sys.stdout.buffer.write(orjson.dumps(asdict(each)) + b"\n")


@router.command("status", short_help="Show the configured plan and its strategies.")
@common
@click.option("--artefact", type=FILE, help="Show this plan instead of the plan that gateway.yaml names.")
def status_router(context: Context, artefact: Path | None) -> None:
    """Show the configured plans, their data and their strategies, and the grader's provenance."""
    from gateway.routing.strategy.plan_file import load_plan

    configured = context.of_running().config.routing.artefact
    paths = [artefact] if artefact else [Path(each) for each in configured]
    try:
        plans = [(path, load_plan(path)) for path in paths]
    except (ArtefactError, OSError) as error:
        raise click.ClickException(str(error)) from error
    provenance = dict(Grader.load().artefact.provenance)
    trials = plans_on_trial(context.of_running())
    lines = [
        f"grader: made {provenance.get('made')}, {provenance.get('prompts')} prompts",
        *(f"on trial {one['id'][:16]}: {one['state']}, {one['why']}" for one in trials),
    ]
    shown = [_plan_values(path, plan) for path, plan in plans]
    values = {"plan": shown[0] if shown else None, "plans": shown, "on_trial": trials, "grader": provenance}
    context.print(values, lambda: _show_status(plans, lines))


def _plan_values(path: Path, plan: Plan) -> dict[str, Any]:
    strategies = [
        {"quality": one.quality, "usd": one.usd, "kind": one.kind, "description": one.description}
        for one in plan.strategies
    ]
    singles = [{"model": one.description, "quality": one.quality, "usd": one.usd} for one in plan.singles]
    return {"file": str(path), "provenance": plan.provenance, "strategies": strategies, "singles": singles}


def _show_status(plans: Sequence[tuple[Path, Plan]], lines: Sequence[str]) -> None:
    if not plans:
        tables.sentences("No plan is configured (routing.plan_file in gateway.yaml): decisions follow the grader.")
    for path, plan in plans:
        files = ", ".join(each["file"] for each in plan.provenance.get("data", ()))
        made = f"made {plan.provenance.get('made')} from {plan.provenance.get('prompts')} prompts ({files})"
        tables.sentences(f"plan {path}: {made}")
        _print(router_tables.of_plan(plan), "Measured on prompts that were not used for fitting.")
    tables.sentences(*lines)


plan.add_command(status_router)


@router.command("evaluate", short_help="Measure the grader, or a plan's promises.")
@common
@click.argument("files", nargs=-1, required=True, type=FILE)
@ARTEFACT
@click.option(
    "--pool",
    type=PATH,
    help="With a plan as --artefact: compare the plan's promised qualities with FILES, at the prices of this pool.",
)
def evaluate_router(context: Context, files: tuple[Path, ...], artefact: Path | None, pool: Path | None) -> None:
    """Measure how well difficulty orders prompts, for each set in FILES; with --pool, how well a plan keeps its
    promises.

    Prints the area under the curve of quality by prompts sent to the strong tier (0.5: chance), with 95 % intervals.
    FILES: JSON lines {"prompt", "w", "s"} (quality of the weak and the strong model, 0..1), plain or gzip.

    With --pool and --artefact PLAN, FILES are outcomes as for `router fit`, of other prompts than the plan's.
    """
    try:
        if pool is not None:
            _print_kept(context, files, artefact, pool)
            return
        reports = evaluate(files, grader_of(artefact))
    except (DataError, ArtefactError, OSError) as error:
        raise click.ClickException(str(error)) from error
    context.print([asdict(report) for report in reports], lambda: _print(router_tables.of_sets(reports)))


def _print_kept(context: Context, files: tuple[Path, ...], artefact: Path | None, pool: Path) -> None:
    """Print how well the plan keeps its promises. Raises DataError, ArtefactError, OSError."""
    from gateway.routing.fit import held_out
    from gateway.routing.fit.outcomes import read_outcomes, read_pool
    from gateway.routing.strategy.plan_file import load_plan

    if artefact is None:
        raise click.UsageError("--pool needs --artefact PLAN, the plan whose promises are checked")
    found = held_out.kept(load_plan(artefact), read_outcomes(files, read_pool(pool)))
    text = router_tables.kept_promises(found)
    context.print([asdict(each) for each in found], lambda: _print(router_tables.of_promises(found), text))
