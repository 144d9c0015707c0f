"""`thriftgate grade` and `router`: how hard a prompt is, and how well that is known."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from gateway.cli.options import Context, common
from gateway.errors import BadRequest
from gateway.routing.evaluate import DataError, evaluate, table
from gateway.routing.grade import Grader, grade_lines

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
ARTEFACT = click.option("--artefact", type=FILE, help="Other weights than the packaged ones.")


@click.command()
@common
@ARTEFACT
def grade(context: Context, artefact: Path | None) -> None:
    """Difficulty 0..1 of prompts: JSON lines in, JSON lines out.

    \b
    echo '{"id": 1, "prompt": "What is 2 + 2?"}' | thriftgate grade
    """
    try:
        for line in grade_lines(sys.stdin.buffer, Grader.load(artefact)):
            sys.stdout.buffer.write(line)
    except BadRequest as error:
        sys.stdout.buffer.flush()
        raise click.ClickException(error.message) from error


@click.group()
def router() -> None:
    """Measure the difficulty grader on your own data."""


@router.command("evaluate")
@common
@click.argument("files", nargs=-1, required=True, type=FILE)
@ARTEFACT
def evaluate_router(context: Context, files: tuple[Path, ...], artefact: Path | None) -> None:
    """How well difficulty orders prompts, for each set in FILES.

    Area under quality against share sent to the strong tier (0.5 is chance), with 95 % intervals.

    FILES: JSON lines {"prompt", "w", "s"} (quality of the weak and the strong model, 0..1), plain or gzip.
    """
    try:
        reports = evaluate(files, Grader.load(artefact))
    except DataError as error:
        raise click.ClickException(str(error)) from error
    context.print([asdict(report) for report in reports], table(reports))
