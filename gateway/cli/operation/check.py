"""`thriftgate check`: the validation that start-up does, without starting."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import click
import orjson

from gateway.cli.echo import echo_json
from gateway.cli.operation.locations import notes
from gateway.cli.options import Context, common
from gateway.domain.backend import RANK
from gateway.learning.judges import JUDGES
from gateway.policy.load import PolicySet, load_policies
from gateway.policy.schema import json_schema
from gateway.routing.router import fitted
from gateway.settings.files import ConfigError
from gateway.settings.gateway import GatewayConfig, Settings
from gateway.settings.receivers import Addresses, ReceiverRefused
from gateway.settings.renamed_keys import GATEWAY, OldName, with_both_names


@click.command()
@common
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a policy file, for editors and CI.")
@click.option("--gateway-schema", is_flag=True, help="Print the JSON Schema of gateway.yaml.")
def check(context: Context, schema: bool, gateway_schema: bool) -> None:
    """Validate gateway.yaml and every policy. Each mistake is one line with file, line, key and remedy.

    \b
    thriftgate check --config gateway.yaml --policies policies
    Exit status: 0 when there is no mistake, 2 otherwise.
    """
    if schema or gateway_schema:
        shown = json_schema() if schema else with_both_names(GatewayConfig.model_json_schema(), GATEWAY)
        echo_json(orjson.dumps(shown, option=orjson.OPT_INDENT_2))
        return
    try:
        settings = context.settings(keys=True)
        policies = load_policies(settings.policies, settings.config.ceilings)
        problems = [
            *unknown_backends(settings, policies),
            *_unknown_receivers(settings, policies),
            *_unreadable(settings, context.config or Path("gateway.yaml")),
        ]
        if problems:
            raise ConfigError(problems)
    except ConfigError as error:
        context.print({"ok": False, "problems": list(error.problems)}, str(error))
        sys.exit(2)
    teams = sorted(policies.policies)
    lines = [
        *(each.line for each in (*settings.old_names, *chain.from_iterable(policies.old_names.values()))),
        *notes(settings.config.backends or (), list(policies.policies.values())),
    ]
    context.print(
        {"ok": True, "teams": teams, "policies": [str(folder) for folder in settings.policies], "notes": lines},
        "\n".join([f"No mistakes: policies for {', '.join(teams)}.", *lines]),
    )


def _unreadable(settings: Settings, config: Path) -> list[str]:
    plan, key = settings.config.routing.artefact, _written(settings.old_names, "routing.artefact", "routing.plan_file")
    try:
        fitted(plan)
    except OSError as error:
        return [f"{config}: {key}: {plan}: {error.strerror}; `thriftgate router fit` writes one"]
    except ValueError as error:
        return [f"{config}: {key}: {error}"]
    return []


def _written(old_names: Iterable[OldName], old: str, new: str) -> str:
    """The name of a key that the file uses: the old or the new one."""
    return old if any(each.key == old for each in old_names) else new


def _unknown_receivers(settings: Settings, policies: PolicySet) -> list[str]:
    addresses, problems = Addresses(lambda: settings.known_receivers), []
    for team, policy in policies.policies.items():
        budgets = [each for budget in policy.budget for each in budget.notify]
        for notify in dict.fromkeys((*policy.alerts.notify, *policy.alerts.escalate_to, *budgets)):
            try:
                addresses.kind_and_reference(notify.target)
            except ReceiverRefused as error:
                problems.append(f"team {team}: notify: {error}")
    return problems


def unknown_backends(settings: Settings, policies: PolicySet) -> list[str]:
    """Mistakes about names in policies that no backend has. None are found if gateway.yaml does not list backends."""
    backends = settings.config.backends
    if not backends:
        return []
    groups = {backend.model_group for backend in backends if backend.model_group}
    known = {backend.name for backend in backends} | groups | set(RANK)
    models = {backend.model for backend in backends}
    problems = []
    for team, policy in policies.policies.items():
        for model, entry in policy.models.items():
            if isinstance(entry, str):
                names, fits = [entry], known | models | {"auto", *policy.models}
            else:
                names, fits = [name for name in (*entry.candidates, entry.reference) if name], known
            problems += [
                f"team {team}: models.{model}: there is no backend or tier called {name!r}; "
                f"there are {', '.join(sorted(known))}"
                for name in names
                if name not in fits
            ]
        problems += [
            f"team {team}: allowed_models: there is no backend, model or tier called {name!r}; "
            f"there are {', '.join(sorted(known | models))}"
            for name in policy.allowed_models or ()
            if name not in known | models
        ]
        judge, judges = policy.trials.judge, {*JUDGES, *(backend.name for backend in backends)}
        if judge not in judges:
            section = _written(policies.old_names_of(team), "trials", "learning")
            problems.append(
                f"team {team}: {section}.judge: there is no judge or backend called {judge!r}; "
                f"there are {', '.join(sorted(judges))}"
            )
    return problems
