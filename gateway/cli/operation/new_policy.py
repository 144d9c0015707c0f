"""Checks the policy of a new team before its file is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from gateway.cli.operation.starter_files import write_new
from gateway.policy.load import PolicySet, reload_policies
from gateway.settings.gateway import Settings, load_settings
from gateway.settings.receivers import Addresses, ReceiverRefused


def create(path: Path, text: str) -> None:
    """Write a new file. Raises ClickException if the file already exists or cannot be written."""
    try:
        write_new(path, text)
    except FileExistsError:
        raise click.ClickException(f"{path} exists already and is not changed.") from None
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}.") from error


def new_problems(config: Path | None, folders: Sequence[Path], path: Path, text: str) -> list[str]:
    """The mistakes that a policy file with this text at `path` would add to those in `folders`. Raises ConfigError if
    gateway.yaml has a mistake."""
    present = [folder for folder in folders if folder.is_dir()]
    settings = load_settings(config, None, present, keys=False)
    _, before = reload_policies(present, settings.config.ceilings, PolicySet())
    with TemporaryDirectory() as other:
        trial = Path(other) / path.name
        trial.write_text(text, encoding="utf-8")
        found, after = reload_policies([*present, Path(other)], settings.config.ceilings, PolicySet())
        after = (*after, *_receivers(settings, found, trial))
        return [each.replace(str(trial), str(path)) for each in after if each not in before]


def _receivers(settings: Settings, policies: PolicySet, path: Path) -> Iterator[str]:
    """Yield the receivers that the teams in the file `path` may not use."""
    addresses = Addresses(lambda: settings.known_receivers)
    for team in policies.files.get(path, ()):
        for notify in chain.from_iterable(budget.notify for budget in policies.policies[team].budget):
            try:
                addresses.kind_and_reference(notify.target)
            except ReceiverRefused as error:
                known = ", ".join(settings.config.receivers or {})
                yield f"{path}: {error}" + (f": --receiver with one of {known}" if known else "")
