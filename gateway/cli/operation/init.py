"""`thriftgate init` and `thriftgate team add`: write a first gateway.yaml, and policies of teams."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gateway.backends.providers.discover import backends_of
from gateway.cli.echo import echo
from gateway.cli.operation import from_litellm
from gateway.cli.operation.new_policy import create, new_problems
from gateway.cli.operation.starter_files import Found, entry, gateway_yaml, policy_yaml
from gateway.cli.options import Context, common
from gateway.domain.notify import VARIABLE
from gateway.domain.receiver_kinds import IN_POLICIES, KINDS
from gateway.policy import keys as store
from gateway.policy.load import load_policies
from gateway.settings.files import ConfigError
from gateway.settings.gateway import GatewayConfig, load_settings

budget_option = click.option("--budget", help="US dollars a month; default: no budget.")


def receiver_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option to a command for each kind of receiver that a policy may name, such as `--slack`."""
    for kind in reversed(IN_POLICIES):
        text = f"env:NAME of the variable with {KINDS[kind].address}, for budget alerts."
        command = click.option(f"--{kind}", help=text)(command)
    return command


@click.command()
@common
@click.option("--team", default="default", show_default=True, help="The team of the first policy.")
@budget_option
@receiver_options
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take the models of a LiteLLM proxy's config.yaml, instead of looking for backends.",
)
def init(context: Context, team: str, budget: str | None, source: Path | None, **addresses: str | None) -> None:
    """Write gateway.yaml and a policy for what this machine has, and validate both.

    Backends are found by provider keys in the environment and by model servers on the usual local ports. Existing
    files are never changed. On a terminal, the command asks for team, budget and receiver if no option names one. With
    --from, the settings of the LiteLLM config that are not taken over are listed with their lines. A model whose
    address is not known here is left out. An API key is used for its own vendor only.

    \b
    thriftgate init --team search --budget 200
    thriftgate init --from config.yaml
    """
    config = context.config or Path("gateway.yaml")
    folder = context.policies[0] if context.policies else Path("policies")
    for path in (config, folder / f"{team}.yaml"):
        if path.exists():
            raise click.ClickException(f"{path} exists already and is not changed; move it away first.")
    if sys.stdin.isatty() and _nothing_given("team", "budget", *IN_POLICIES):
        team, budget, addresses = asked(team)
        if (folder / f"{team}.yaml").exists():
            raise click.ClickException(f"{folder / team}.yaml exists already and is not changed; move it away first.")
    receivers = _receivers(team, budget, addresses)
    found = from_litellm.read(source) if source else asyncio.run(_discovered())
    if source and not found.entries:
        raise click.ClickException("\n  ".join([f"{source}: no model can be taken over.", *found.notes]))
    if not found.entries:
        raise click.ClickException(
            "No backend was found: export a provider's key (OPENAI_API_KEY, ANTHROPIC_API_KEY …) or start a model "
            "server, then call this again. `thriftgate serve --demo` needs neither."
        )
    create(config, gateway_yaml(found.entries))
    path = folder / f"{team}.yaml"
    create(path, policy_yaml(team, budget_usd=budget, notify=receivers, aliases=found.aliases))
    problems = _problems(config, folder)
    names = [str(each.values["name"]) for each in found.entries]
    context.print(
        {"config": str(config), "policy": str(path), "backends": names, "notes": found.notes, "problems": problems},
        lambda: _show(config, path, team, found, problems),
    )
    if problems:
        raise SystemExit(1)


def _nothing_given(*names: str) -> bool:
    """Whether none of these options is on the command line."""
    sources = (click.get_current_context().get_parameter_source(name) for name in names)
    return all(source is ParameterSource.DEFAULT for source in sources)


def asked(team: str) -> tuple[str, str | None, dict[str, str | None]]:
    """Ask the user for team, budget and receivers. `team`: the name that is proposed."""
    team = click.prompt("Team of the first policy", default=team, err=True)
    budget = click.prompt("Budget in US dollars a month (empty: none)", default="", show_default=False, err=True)
    addresses: dict[str, str | None] = dict.fromkeys(IN_POLICIES)
    if budget:
        kinds = click.Choice(["none", *IN_POLICIES])
        kind = click.prompt("Receiver of budget alerts", type=kinds, default="none", err=True)
        if kind != "none":
            text = f"env:NAME of the variable with {KINDS[kind].address}"
            addresses[kind] = click.prompt(
                text, default=f"env:{re.sub('[^A-Z0-9]', '_', team.upper())}_{kind.upper()}", err=True
            )
    return team, budget or None, addresses


@click.group()
def team() -> None:
    """Write policies of teams."""


@team.command(short_help="Write a policy for a new team.")
@common
@click.argument("name")
@budget_option
@receiver_options
@click.option("--receiver", help="One of `receivers` in gateway.yaml, for budget alerts.")
@click.option("--extends", metavar="BASE", help="The base whose rules the team has; default: rules of its own.")
def add(context: Context, name: str, budget: str | None, extends: str | None, **addresses: str | None) -> None:
    """Write policies/NAME.yaml for a new team: here if there is a folder of policies, else for the running gateway.

    The policy is checked together with gateway.yaml and all other policies, and written only if it is valid. A running
    gateway uses it within a second.

    \b
    thriftgate team add search --budget 200 --slack env:SEARCH_SLACK_URL
    """
    config, folders = context.files()
    folders = folders or (Path("policies"),)
    path = folders[0] / f"{name}.yaml"
    text = policy_yaml(name, budget_usd=budget, notify=_receivers(name, budget, addresses), aliases={}, extends=extends)
    if path.exists():
        raise click.ClickException(f"{path} exists already and is not changed.")
    if problems := new_problems(config, folders, path, text):
        raise click.ClickException("\n".join(["Nothing was written.", *problems]))
    create(path, text)
    warning = _not_read(context, folders[0])
    next_ = f"{path} is written. Make a key: thriftgate keys create --team {name}"
    context.print({"team": name, "policy": str(path), "warning": warning or None}, next_)
    if warning:
        echo(warning, err=True)


def _not_read(context: Context, folder: Path) -> str:
    """A warning if the running gateway does not read `folder`. Empty if the gateway reads it, or if no gateway runs."""
    gateway = context.gateway()
    if gateway is None or folder.resolve() in [each.resolve() for each in gateway.policies]:
        return ""
    reads = " and ".join(map(str, gateway.policies)) or "no policies"
    more = f" For that one, add --policies {gateway.policies[0]}" if gateway.policies else ""
    return f"Warning: the gateway on {gateway.url} does not read {folder}; it reads {reads}.{more}"


def _receivers(team: str, budget: str | None, addresses: Mapping[str, str | None]) -> list[dict[str, str]]:
    """The receivers in the form of a policy. `addresses`: kind → `env:NAME`. Raises UsageError for an address that a
    policy cannot have."""
    try:
        store.check_team(team)
    except ValueError as error:
        raise click.UsageError(f"The team's name {error}.") from error
    try:
        if budget is not None and not Decimal(0) < Decimal(budget) <= Decimal(10**9):
            raise ValueError("--budget must be above 0 US dollars")
    except InvalidOperation as error:
        raise click.UsageError(f"--budget must be a number of US dollars, not {budget!r}.") from error
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    targets = {kind: reference for kind in IN_POLICIES if (reference := addresses[kind])}
    named = [{"receiver": name} for name in (addresses.get("receiver"),) if name]
    for kind, reference in targets.items():
        if not re.fullmatch(VARIABLE, reference):
            raise click.UsageError(
                f"--{kind} must be env:NAME with a name in capitals, so that no address is in a shared file."
            )
        if (word := KINDS[kind].named) not in reference:
            raise click.UsageError(f"The variable of --{kind} must have {word} in its name.")
    if (targets or named) and budget is None:
        raise click.UsageError("Receivers get alerts of a budget; add --budget.")
    return [*({kind: reference} for kind, reference in targets.items()), *named]


async def _discovered() -> Found:
    return Found([entry(backend) for backend in await backends_of(GatewayConfig(), None)])


def _problems(config: Path, folder: Path) -> list[str]:
    """The mistakes that `thriftgate check` would report. Mistakes about the backends' keys are left out."""
    try:
        settings = load_settings(config, None, [folder], keys=False)
        load_policies(settings.policies, settings.config.ceilings)
    except ConfigError as error:
        return list(error.problems)
    return []


def _show(config: Path, policy: Path, team: str, found: Found, problems: list[str]) -> None:
    echo(f"{config}: {len(found.entries)} backends: {', '.join(str(each.values['name']) for each in found.entries)}")
    echo(f"{policy}: the policy of team {team}")
    for note in found.notes:
        echo(f"  {note}", err=True)
    for problem in problems:
        echo(f"  mend {problem}", err=True)
    if not problems:
        echo(f"\nNext:\n  thriftgate up\n  thriftgate connect claude-code --team {team}\n  thriftgate status")
