"""The options of all commands: places of files, and the output format."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli.echo import echo, echo_json
from gateway.settings.environment import default_data_dir, names_data_dir
from gateway.settings.gateway import Paths, Settings, load_settings
from gateway.settings.running import RunningGateway, running, running_on

CONFIG, POLICIES = Path("gateway.yaml"), Path("policies")


@dataclass(frozen=True, slots=True)
class Context:
    """The values of the options that all commands have."""

    config: Path | None
    data_dir: Path | None
    policies: tuple[Path, ...]
    as_json: bool

    def settings(self, *, keys: bool = False) -> Settings:
        """Load the settings. `keys`: whether to load the backends' keys, too, for commands that call backends. Raises
        ConfigError."""
        return load_settings(self.config, self.data_dir, self.policies, keys=keys)

    def of_running(self, *, keys: bool = False, writes: bool = False) -> Settings:
        """Load the settings of a running gateway, whatever the working directory is. If no data directory is given, and
        this user runs only one gateway, that gateway is used. Raises ConfigError.

        `keys`: whether to load the backends' keys too. `writes`: whether to warn if other gateways run.
        """
        if (gateway := self.gateway()) is not None:
            return self._files_of(gateway, keys)
        directory = self.data_dir or default_data_dir()
        for gateway in running() if writes else ():
            echo(
                f"Warning: no gateway runs on {directory}, but one on {gateway.url} uses {gateway.data}. For that one, "
                f"add --data-dir {gateway.data}",
                err=True,
            )
        return self.settings(keys=keys)

    def gateway(self) -> RunningGateway | None:
        """The running gateway that the command is about; None if there is none."""
        directory = self.data_dir or default_data_dir()
        if (found := running_on(directory.absolute())) is not None:
            return found
        gateways = running()
        alone = len(gateways) == 1 and self.data_dir is None and not names_data_dir()
        return gateways[0] if alone else None

    def files(self) -> tuple[Path | None, tuple[Path, ...]]:
        """The gateway.yaml and the folders of policies to check or to change. They are those on the command line; else
        those in the working directory; else those of the running gateway."""
        config = self.config or (CONFIG if CONFIG.is_file() else None)
        policies = self.policies or ((POLICIES,) if POLICIES.is_dir() else ())
        if config is None and not policies and (gateway := self.gateway()) is not None:
            return gateway.config, gateway.policies
        return config, policies

    def policy_folders(self, settings: Settings) -> Sequence[Path]:
        """The folders of the policies that apply: those on the command line; else those of the gateway that runs on the
        data directory; else those of the settings."""
        gateway = running_on(settings.paths.data)
        return settings.policies if self.policies or gateway is None else gateway.policies

    def _files_of(self, gateway: RunningGateway, keys: bool) -> Settings:
        if gateway.data != (self.data_dir or default_data_dir()).absolute():
            echo(f"Using {gateway.data}, the data directory of the gateway on {gateway.url}.", err=True)
        paths = Paths(gateway.data)
        config = self.config or (paths.accepted if paths.accepted.is_file() else None)
        policies = self.policies or ((paths.policies,) if paths.policies.is_dir() else ())
        return load_settings(config, gateway.data, policies, keys=keys)

    def print(self, value: Any, text: Callable[[], None] | str) -> None:
        """Print `value` as JSON if --json was given, otherwise the text for people."""
        if self.as_json:
            echo_json(orjson.dumps(value, default=str))
        elif isinstance(text, str):
            echo(text)
        else:
            text()


class Renamed(click.Option):
    """An option that also accepts its former spellings. The help does not show them."""

    def __init__(self, names: Sequence[str], *, former: str, **options: Any) -> None:
        super().__init__([*names, former], **options)
        self._former = former

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        shown = copy(self)
        shown.opts = [name for name in self.opts if name != self._former]
        return click.Option.get_help_record(shown, ctx)


def old_name(command: click.Command, name: str) -> click.Command:
    """A copy of `command` under its former name. The former name works, but the help does not list it."""
    found = copy(command)
    found.name, found.hidden = name, True
    return found


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --config, --data-dir, --policies and --json to a command. The command gets their values as a Context, as its
    first argument."""

    path = click.Path(path_type=Path)

    @click.option("--config", type=path, metavar="FILE", help="gateway.yaml; default: ./gateway.yaml if it exists.")
    @click.option(
        "--data-dir",
        type=path,
        metavar="DIR",
        help="Folder of keys, ledger and journal; default: $THRIFTGATE_DATA_DIR, else ~/.local/share/thriftgate.",
    )
    @click.option(
        "--policies",
        multiple=True,
        type=path,
        metavar="DIR",
        help="Folder of policy files; default: ./policies if it exists. Repeatable.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
    @functools.wraps(command)
    def wrapped(
        config: Path | None, data_dir: Path | None, policies: tuple[Path, ...], as_json: bool, **rest: Any
    ) -> Any:
        return command(Context(config, data_dir, policies, as_json), **rest)

    return wrapped
