"""`thriftgate router refit`: measures the samples that teams keep, fits a plan on them, and puts it on trial."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.backends.providers.discover import backends_of
from gateway.cli import tables
from gateway.cli.echo import counted, echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.quality.outcomes import Ask, begun, kept_prompts, measure
from gateway.domain.policy import ModelRule, Policy
from gateway.domain.units import parse_usd, usd_to_pico
from gateway.errors import GatewayError, LedgerUnavailable
from gateway.learning.plans import plan_trials
from gateway.policy.load import load_policies
from gateway.routing.aliases import permitted
from gateway.settings.gateway import Settings

LEAST_ROWS = 200
"""Minimum number of measured prompts on which a plan is fitted."""
_MOST_OUTPUT, _CONCURRENT = 1024, 4

Pool = tuple[str, ...]
"""Names of backends. The first one is the reference."""


@dataclass(slots=True)
class Refit:
    """The result of one run of the command."""

    measured: dict[str, int] = field(default_factory=dict)
    """Team → number of measured prompts, with those of earlier runs."""
    notes: list[str] = field(default_factory=list)
    """Sentences about the parts of the run that were skipped, with the reasons."""
    pool: Pool = ()
    rows: int = 0
    plan: str = ""
    """Id of the plan that is on trial now; empty: none was fitted."""


@click.command("refit", short_help="Fit a plan on teams' kept samples, and put it on trial.")
@common
@click.option("--team", "teams", multiple=True, help="Only this team. Default: every team with data.store_samples.")
@click.option("--max-usd", help="Most that measuring may cost per team. Default: learning.cap_usd of its policy.")
def refit(context: Context, teams: tuple[str, ...], max_usd: str | None) -> None:
    """Measure the backends of each team's rule `auto` on the samples that the team keeps, fit a plan, and put it on
    trial.

    Only samples that were not measured before are asked, so an interrupted run goes on where it ended. Teams with the
    same pool of backends share a plan; the pool with the most measured prompts gets one, from 200 prompts on. Nothing
    is done while another plan is on trial. With `routing.refit: weekly`, the gateway runs this command every week.
    """
    os.nice(10)  # a gateway may serve on this machine
    settings = context.settings(keys=True)
    try:
        limit = None if max_usd is None else usd_to_pico(parse_usd(max_usd))
        done = _refit(settings, teams, limit)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(
            f"{error.filename or folder_of(settings)}: {error.strerror}; what was measured is kept."
        ) from error
    except GatewayError as error:
        raise click.ClickException(error.message) from error
    values = {
        "measured": done.measured, "notes": done.notes, "pool": list(done.pool), "rows": done.rows,
        "plan": done.plan or None,
    }  # fmt: skip
    context.print(values, lambda: _show(done))


def folder_of(settings: Settings) -> Path:
    """The folder with the outcomes that were measured."""
    return settings.paths.data / "refit"


def _refit(settings: Settings, teams: Sequence[str], limit: int | None) -> Refit:
    """Do one refit: measure, fit, and put the plan on trial. Raises ValueError, OSError, GatewayError,
    ClickException."""
    done = Refit()
    with open_database(settings, existing=True) as database, database.read() as connection:
        for team in teams:
            known_team(database, settings, team)
        on_trial = [one for one in plan_trials.known(connection) if one.state == "shadow"]
    if on_trial:
        done.notes.append(f"Plan {on_trial[0].id[:16]} is on trial, so no other plan is fitted.")
        return done
    folder = folder_of(settings)
    folder.mkdir(mode=0o700, exist_ok=True)
    files: dict[Pool, list[Path]] = defaultdict(list)
    prices: dict[str, tuple[float, float]] = {}
    for policy, pool in _pools(settings, teams, done.notes):
        out = folder / f"{policy.team}-{blake2b(repr(pool).encode(), digest_size=4).hexdigest()}.jsonl"
        files[pool].append(out)
        try:
            prices |= _measure(settings, policy, pool, out, limit, done)
        except LedgerUnavailable:  # no call of any team can be recorded, so the whole run must be repeated soon
            raise
        except GatewayError as error:  # this team cannot pay, but other teams can
            done.notes.append(f"{policy.team}: {error.message}")
    if priced := {pool: paths for pool, paths in files.items() if prices.keys() >= set(pool)}:
        _fit(settings, priced, prices, folder, done)
    return done


def _pools(settings: Settings, teams: Sequence[str], notes: list[str]) -> list[tuple[Policy, Pool]]:
    """The policy of each team that keeps samples, with the pool of backends in its rule `auto`."""
    policies = load_policies(settings.policies, settings.config.ceilings)
    backends = asyncio.run(backends_of(settings.config, None))
    found = []
    for team in teams or sorted(policies.policies):
        policy = policies.find(team)[0]
        rule = policy.rule("auto")
        if policy.data.store_samples is None:
            if teams:
                notes.append(f"{team} keeps no samples (data.store_samples in its policy).")
            continue
        names = [each.name for each in permitted("auto", policy, backends, None).backends]
        reference = rule.reference if isinstance(rule, ModelRule) else None
        if reference not in names or len(names) < 2:
            notes.append(f"{team}: its rule auto needs a backend as its baseline, and another candidate.")
            continue
        found.append((policy, (reference, *sorted(name for name in names if name != reference))))
    return found


def _measure(
    settings: Settings, policy: Policy, pool: Pool, out: Path, limit: int | None, done: Refit
) -> Mapping[str, tuple[float, float]]:
    """Measure the samples of the team that have no outcome in `out` yet. Returns the prices of the pool: backend →
    (input, output)."""
    prompts = kept_prompts(settings, policy.team, _MOST_OUTPUT, 0.0)
    _forget(out, {prompt.id for prompt in prompts})
    ask = Ask(pool, policy.trials.judge, _MOST_OUTPUT, _CONCURRENT, out)
    cap = usd_to_pico(policy.trials.cap_usd) if limit is None else limit
    built = asyncio.run(measure(settings, prompts, ask, cap, policy.team))
    done.measured[policy.team] = built.known + built.written
    if built.stopped:
        done.notes.append(f"{policy.team}: {built.stopped} The next run goes on.")
    return built.prices


def _forget(out: Path, kept: set[str]) -> None:
    """Remove from the file `out` the outcomes whose samples have expired or were deleted. `kept`: the ids of the
    samples that still exist. Raises OSError; raises ClickException if the file has no outcomes."""
    if not begun(out) - kept:
        return
    rows = [line for line in out.read_bytes().splitlines(keepends=True) if str(orjson.loads(line)["id"]) in kept]
    fresh = out.with_name(out.name + ".new")
    fresh.write_bytes(b"".join(rows))
    fresh.replace(out)


def _fit(
    settings: Settings,
    files: Mapping[Pool, Sequence[Path]],
    prices: Mapping[str, tuple[float, float]],
    folder: Path,
    done: Refit,
) -> None:
    """Fit a plan for the pool with the most measured prompts, and put it on trial. Raises DataError, OSError."""
    from gateway.routing.fit.plan import fit_plan
    from gateway.routing.strategy.plan_file import save_plan

    counts = {pool: sum(len(begun(path)) for path in paths) for pool, paths in files.items()}
    done.pool = max(counts, key=counts.__getitem__)
    done.rows = counts[done.pool]
    if done.rows < LEAST_ROWS:
        done.notes.append(f"{done.rows} prompts are measured; a plan is fitted from {LEAST_ROWS} on.")
        return
    written = [path for path in files[done.pool] if begun(path)]
    plan, _, _ = fit_plan(written, {name: prices[name] for name in done.pool}, lambda line: echo(line, err=True))
    save_plan(plan, folder / "plan.json")
    data = (folder / "plan.json").read_bytes()
    with open_database(settings, existing=True) as database, database.begin() as connection:
        done.plan = plan_trials.stage(connection, data, time.time())


def _show(done: Refit) -> None:
    found: list[Any] = [f"{team}: {counted(count, 'prompt')} measured." for team, count in done.measured.items()]
    if done.plan:
        found.append(f"On trial: {done.plan[:16]}, fitted on {done.rows} prompts for {', '.join(done.pool)}.")
    tables.sentences(*found, *done.notes, *([] if found or done.notes else ["No team keeps samples."]))
