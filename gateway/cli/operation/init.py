"""`thriftgate init` and `thriftgate team add`: the first gateway.yaml and teams' policies."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path

import click

from gateway.backends.providers.discover import discover
from gateway.cli.echo import echo
from gateway.cli.operation import from_litellm
from gateway.cli.operation.starter_files import Found, entry, gateway_yaml, policy_yaml, write_new
from gateway.cli.options import Context, common
from gateway.policy import keys as store
from gateway.policy.load import load_policies
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Ceilings, GatewayConfig, load_settings

_REFERENCE = re.compile(r"(env:[A-Za-z_][A-Za-z0-9_]*|receiver:[A-Za-z0-9_.-]+)")

budget_option = click.option("--budget", help="US dollars a month; default: no budget.")
slack_option = click.option("--slack", help="env:NAME of the variable with a Slack webhook's URL, for budget alerts.")
webhook_option = click.option("--webhook", help="env:NAME of the variable with a webhook's URL, for budget alerts.")
email_option = click.option("--email", help="env:NAME of the variable with mail addresses, for budget alerts.")


@click.command()
@common
@click.option("--team", default="default", show_default=True, help="The team of the first policy.")
@budget_option
@slack_option
@webhook_option
@email_option
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take the models of a LiteLLM proxy's config.yaml, instead of looking for backends.",
)
def init(
    context: Context,
    team: str,
    budget: str | None,
    slack: str | None,
    webhook: str | None,
    email: str | None,
    source: Path | None,
) -> None:
    """Write gateway.yaml and a policy for what this machine has, and validate both.

    Backends are found by provider keys in the environment and by model servers on the usual local ports. Existing
    files are never changed. Settings of a LiteLLM config that have no counterpart are listed with their lines.

    \b
    thriftgate init --team search --budget 200
    thriftgate init --from config.yaml
    """
    config = context.config or Path("gateway.yaml")
    folder = context.policies[0] if context.policies else Path("policies")
    for path in (config, folder / f"{team}.yaml"):
        if path.exists():
            raise click.ClickException(f"{path} exists already and is not changed; move it away first.")
    receivers = _receivers(team, budget, slack, webhook, email)
    found = from_litellm.read(source) if source else asyncio.run(_discovered())
    if not found.entries:
        raise click.ClickException(
            "No backend was found: export a provider's key (OPENAI_API_KEY, ANTHROPIC_API_KEY …) or start a model "
            "server, then call this again. `thriftgate serve --demo` needs neither."
        )
    write_new(config, gateway_yaml(found.entries))
    path = folder / f"{team}.yaml"
    write_new(path, policy_yaml(team, budget_usd=budget, notify=receivers, aliases=found.aliases))
    problems = _problems(config, folder)
    names = [str(each.values["name"]) for each in found.entries]
    context.print(
        {"config": str(config), "policy": str(path), "backends": names, "notes": found.notes, "problems": problems},
        lambda: _show(config, path, team, found, problems),
    )
    if problems:
        raise SystemExit(1)


@click.group()
def team() -> None:
    """Write policies of teams."""


@team.command()
@common
@click.argument("name")
@budget_option
@slack_option
@webhook_option
@email_option
def add(
    context: Context, name: str, budget: str | None, slack: str | None, webhook: str | None, email: str | None
) -> None:
    """Write policies/NAME.yaml for a new team.

    A running gateway uses it within a second.

    \b
    thriftgate team add search --budget 200 --slack env:SEARCH_SLACK_URL
    """
    folder = context.policies[0] if context.policies else Path("policies")
    path = folder / f"{name}.yaml"
    receivers = _receivers(name, budget, slack, webhook, email)
    try:
        write_new(path, policy_yaml(name, budget_usd=budget, notify=receivers, aliases={}))
    except FileExistsError:
        raise click.ClickException(f"{path} exists already and is not changed.") from None
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}.") from error
    try:
        load_policies([folder], Ceilings())
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    text = f"{path} is written. Make a key: thriftgate keys create --team {name}"
    context.print({"team": name, "policy": str(path)}, text)


def _receivers(
    team: str, budget: str | None, slack: str | None, webhook: str | None, email: str | None
) -> list[dict[str, str]]:
    """The alert receivers in the form of a policy. Raises UsageError for an argument that a policy cannot contain."""
    try:
        store.check_team(team)
        if budget is not None and not Decimal(0) < Decimal(budget) <= Decimal(10**9):
            raise ValueError("--budget must be above 0 US dollars")
    except InvalidOperation as error:
        raise click.UsageError(f"--budget must be a number of US dollars, not {budget!r}.") from error
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    targets = [{kind: target} for kind, target in (("slack", slack), ("webhook", webhook), ("email", email)) if target]
    for each in targets:
        for kind, target in each.items():
            if not _REFERENCE.fullmatch(target):
                raise click.UsageError(f"--{kind} must be env:NAME, so that no address is in a shared file.")
    if targets and budget is None:
        raise click.UsageError("Receivers get alerts of a budget; add --budget.")
    return targets


async def _discovered() -> Found:
    return Found([entry(backend) for backend in await discover(GatewayConfig(), None, False)])


def _problems(config: Path, folder: Path) -> list[str]:
    """The mistakes that `thriftgate check` would report, except for the backends' keys."""
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
        echo(f"\nNext:\n  thriftgate serve\n  thriftgate connect claude-code --team {team}\n  thriftgate status")
