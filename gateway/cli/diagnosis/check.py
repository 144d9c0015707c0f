"""`thriftgate check`: validates the files as the gateway does at its start, without starting."""

from __future__ import annotations

import sys

import click
import orjson

from gateway.cli.diagnosis.files import check_files
from gateway.cli.diagnosis.findings import of_files, show
from gateway.cli.echo import echo_json
from gateway.cli.options import Context, common
from gateway.policy.schema import json_schema
from gateway.settings.gateway import GatewayConfig
from gateway.settings.renamed_keys import GATEWAY, with_both_names


@click.command()
@common
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a policy file, for editors and CI.")
@click.option("--gateway-schema", is_flag=True, help="Print the JSON Schema of gateway.yaml.")
def check(context: Context, schema: bool, gateway_schema: bool) -> None:
    """Validate gateway.yaml and every policy. Each mistake is one line with file, line, key and remedy.

    `thriftgate doctor` also checks the machine and the backends.

    \b
    thriftgate check --config gateway.yaml --policies policies
    Exit status: 0 when there is no mistake, 2 otherwise.
    """
    if schema or gateway_schema:
        shown = json_schema() if schema else with_both_names(GatewayConfig.model_json_schema(), GATEWAY)
        echo_json(orjson.dumps(shown, option=orjson.OPT_INDENT_2))
        return
    found = check_files(*context.files())
    known = {"teams": found.teams, "policies": [str(folder) for folder in found.policies]}
    values = {"ok": False, "problems": found.problems} if found.problems else {"ok": True, **known}
    context.print({**values, "notes": found.notes}, lambda: show(of_files(found)))
    if found.problems:
        sys.exit(2)
