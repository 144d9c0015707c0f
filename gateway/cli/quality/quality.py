"""`thriftgate quality`: how good cheaper backends' answers are."""

from __future__ import annotations

import click

from gateway.cli.quality.compare import compare
from gateway.cli.quality.learning import learned


@click.group()
def quality() -> None:
    """Show how good the cheaper backends' answers are, measured on a team's own requests or on your prompts."""


quality.add_command(learned)
quality.add_command(compare)
