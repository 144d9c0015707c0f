"""`thriftgate grade`: prints the difficulty of prompts."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gateway.cli.options import Context, common
from gateway.errors import BadRequest
from gateway.routing.difficulty.grader import grade_lines
from gateway.routing.difficulty.weights_file import ArtefactError
from gateway.routing.strategy.plan_grader import grader_of

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
ARTEFACT = click.option("--artefact", type=FILE, help="Another grader than the packaged one, or a fitted plan.")


@click.command()
@common
@ARTEFACT
def grade(context: Context, artefact: Path | None) -> None:
    """Print the difficulty 0..1 of prompts: JSON lines in, JSON lines out.

    \b
    echo '{"id": 1, "prompt": "What is 2 + 2?"}' | thriftgate grade
    """
    try:
        grader = grader_of(artefact)
    except (ArtefactError, OSError) as error:
        raise click.ClickException(str(error)) from error
    try:
        for line in grade_lines(sys.stdin.buffer, grader):
            sys.stdout.buffer.write(line)
    except BadRequest as error:
        sys.stdout.buffer.flush()
        raise click.ClickException(error.message) from error
