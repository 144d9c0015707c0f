"""The one way to standard output and error: whatever was stored is printed as text."""

from __future__ import annotations

import click

from gateway.domain.text.visible import visible, visible_json


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Lines for people, or CSV."""
    click.echo(visible(text, lines=True), err=err, nl=nl)


def echo_json(text: bytes, *, nl: bool = True) -> None:
    """For scripts."""
    click.echo(visible_json(text.decode()), nl=nl)


def echo_raw(data: bytes) -> None:
    """A file's bytes, or what a `paper.console` has rendered."""
    click.echo(data, nl=False)
