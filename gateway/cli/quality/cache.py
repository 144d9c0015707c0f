"""`thriftgate cache`: measures the semantic cache, and shows and deletes its content."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import orjson
from rich.progress import Progress

from gateway.cache.evaluate import MAX_ERROR, Evaluator
from gateway.cache.quality.curve import Point, curve
from gateway.cli.echo import echo
from gateway.cli.options import Context, common
from gateway.cli.quality.cache_held import flush, show, stats
from gateway.errors import EmbedderUnavailable

Row = Mapping[str, Any]

MODE = click.option(
    "--mode",
    type=click.Choice(list(MAX_ERROR)),
    default="default",
    show_default=True,
    help="default: one wrong answer in 100 look-ups is allowed; strict: only harmless differences are a hit.",
)
LISTS = click.option("--without-lists", is_flag=True, help="Test the verifier without its word lists.")
EMBEDDER = click.option(
    "--embedder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="An embedder that `embedder build` made; default: the packaged one.",
)


@click.group()
def cache() -> None:
    """Measure the cache on your questions; show and flush its content."""


@cache.command()
@common
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@MODE
@LISTS
@EMBEDDER
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also plot hits by threshold (PNG, SVG), for rows with a label (1 same, 0 not); needs matplotlib.",
)
def evaluate(
    context: Context, file: Path, mode: str, without_lists: bool, embedder: Path | None, plot: Path | None
) -> None:
    """Test which pairs of questions would share an answer.

    The decision is made by the same code as in serving. FILE: JSON lines {"id", "stored", "asked"} (text or message
    list). Prints JSON lines {"id", "hit", "score"}.
    """
    evaluator = _evaluator(mode, without_lists, embedder)
    keys = ("id", "stored", "asked", *(("label",) if plot else ()))
    scores = _stream(file, evaluator.evaluate, keys)
    if plot:
        labels = [int(row["label"]) for row in _rows(file.read_bytes().splitlines(), keys)]
        _plot(curve(scores, labels), plot)


@cache.command()
@common
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@MODE
@LISTS
@EMBEDDER
def replay(context: Context, file: Path, mode: str, without_lists: bool, embedder: Path | None) -> None:
    """Run a sequence of questions in order. Each question is stored unless it is a hit.

    FILE: JSON lines {"id", "asked"}. Prints JSON lines {"id", "hit", "match", "score"}; match is the id of the row
    whose answer would be served. The share of hits is printed on standard error.
    """
    hits = 0

    def counted(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        nonlocal hits
        for found in _evaluator(mode, without_lists, embedder).replay(rows):
            hits += found["hit"]
            yield found

    asked = len(_stream(file, counted, ("id", "asked")))
    echo(f"{hits} of {asked} questions answered from the cache ({100 * hits / max(1, asked):.1f} %).", err=True)


def _evaluator(mode: str, without_lists: bool, embedder: Path | None) -> Evaluator:
    try:
        return Evaluator(mode, lists=not without_lists, embedder=embedder)
    except EmbedderUnavailable as error:
        raise click.ClickException(str(error)) from error


cache.add_command(flush)
cache.add_command(stats)
cache.add_command(show)


def _plot(points: list[Point], path: Path) -> None:
    """Plot three curves over the score threshold: the share of hits among pairs of equal questions, the share of hits
    among pairs of different questions, and the share of wrong hits among all pairs."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise click.ClickException("--plot needs matplotlib: pip install 'thriftgate[loadtest]'.") from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    thresholds = [point.threshold for point in points]
    axes.plot(thresholds, [100 * point.right for point in points], label="same question: kept")
    axes.plot(thresholds, [100 * point.wrong for point in points], label="another question: false hits")
    axes.plot(thresholds, [100 * point.wrong_of_all for point in points], "--", label="wrong hits of all pairs")
    axes.set(xlabel="least score of a hit", ylabel="%", ylim=(0, 100))
    axes.legend()
    figure.savefig(path)


def _stream(
    file: Path, work: Callable[[Iterable[Row]], Iterator[dict[str, Any]]], keys: tuple[str, ...]
) -> list[float]:
    """Apply `work` to each row in `file`, and print each result as a JSON line. Returns the scores of the results."""
    scores = []
    lines = file.read_bytes().splitlines()
    with Progress(transient=True, console=None, disable=not sys.stderr.isatty()) as progress:
        rows = _rows(lines, keys)
        for found in progress.track(work(rows), total=len(lines), description=file.name):
            sys.stdout.buffer.write(orjson.dumps(found) + b"\n")
            scores.append(float(found["score"]))
    return scores


def _rows(lines: list[bytes], keys: tuple[str, ...]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise click.ClickException(f"line {number}: not valid JSON ({error}); give one object a line.") from error
        if not isinstance(row, dict) or any(key not in row for key in keys):
            raise click.ClickException(f"line {number}: give an object with {', '.join(keys)}.")
        yield row
