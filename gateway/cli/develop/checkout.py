"""Loads the package `loadtests`, which exists only in a checkout of the repository."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click


def checkout_module(name: str, command: str) -> Any:
    """Load the module `loadtests.NAME`. Raises ClickException, which names `command`, if this is not a checkout or if a
    development package is missing."""
    checkout = Path(__file__).parents[3]
    if not (checkout / "loadtests" / f"{name}.py").is_file():
        raise click.ClickException(
            f"{command} needs a checkout: the package loadtests is not installed with thriftgate."
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    try:
        return importlib.import_module(f"loadtests.{name}")
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"{command} needs the development packages, and {error.name} is missing; `make test` installs them."
        ) from error
