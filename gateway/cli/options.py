"""What every sub-command takes: where the files lie, and how to print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli.echo import echo, echo_json
from gateway.settings.gateway import Settings, load_settings


@dataclass(frozen=True, slots=True)
class Context:
    """The resolved common options."""

    config: Path | None
    data_dir: Path | None
    policies: tuple[Path, ...]
    as_json: bool

    def settings(self, *, keys: bool = False) -> Settings:
        """`keys`: with those of the backends, for who is to call them. Raises ConfigError."""
        return load_settings(self.config, self.data_dir, self.policies, keys=keys)

    def print(self, value: Any, text: Callable[[], None] | str) -> None:
        """`value` as JSON when asked, else the text meant for people."""
        if self.as_json:
            echo_json(orjson.dumps(value, default=str))
        elif isinstance(text, str):
            echo(text)
        else:
            text()


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --config, --data-dir, --policies and --json; the command gets them as its first argument, a Context."""

    path = click.Path(path_type=Path)

    @click.option("--config", type=path, metavar="FILE", help="gateway.yaml; default: ./gateway.yaml if there.")
    @click.option(
        "--data-dir",
        type=path,
        metavar="DIR",
        help="Where keys, ledger and journal lie; default: $THRIFTGATE_DATA_DIR, else ~/.local/share/thriftgate.",
    )
    @click.option(
        "--policies",
        multiple=True,
        type=path,
        metavar="DIR",
        help="Folder of policy files; default: ./policies if there. Repeatable.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
    @functools.wraps(command)
    def wrapped(
        config: Path | None, data_dir: Path | None, policies: tuple[Path, ...], as_json: bool, **rest: Any
    ) -> Any:
        return command(Context(config, data_dir, policies, as_json), **rest)

    return wrapped
