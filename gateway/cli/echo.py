"""Prints on standard output and standard error. Control characters in stored text are escaped."""

from __future__ import annotations

import click

from gateway.domain.text.visible import visible, visible_json


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines for people, or lines of CSV."""
    click.echo(visible(text, lines=True), err=err, nl=nl)


def echo_json(text: bytes, *, nl: bool = True) -> None:
    """Print JSON for scripts."""
    click.echo(visible_json(text.decode()), nl=nl)


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as `1 row` or `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def echo_raw(data: bytes) -> None:
    """Print bytes without escaping them, such as a file's content or the output of `tables.console`."""
    click.echo(data, nl=False)
