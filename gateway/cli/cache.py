"""`thriftgate cache`: would it have answered, and is what it holds still wanted?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import orjson
from rich.progress import Progress

from gateway.cache.evaluate import MAX_ERROR, Evaluator
from gateway.cache.lookup import Cache
from gateway.cli.options import Context, common
from gateway.domain.units import parse_duration
from gateway.errors import StateUnavailable
from gateway.settings.gateway import Settings
from gateway.state.connection import State
from gateway.state.log import IndexLog

Row = Mapping[str, Any]

MODE = click.option(
    "--mode",
    type=click.Choice(list(MAX_ERROR)),
    default="default",
    show_default=True,
    help="default: one wrong answer in a hundred look-ups is allowed; strict: none, only harmless differences pass.",
)

CATCH_UP_S = 30.0
"""Longest wait for the running gateway's index of answers."""


@click.group()
def cache() -> None:
    """Measure the cache on your own questions; flush what it holds."""


@cache.command()
@common
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@MODE
def evaluate(context: Context, file: Path, mode: str) -> None:
    """Try pairs of questions: would one's answer serve the other?

    The code that serves decides, with the packaged embedder. FILE: JSON lines {"id", "stored", "asked"} (text or
    message list); out come {"id", "hit", "score"}.
    """
    _stream(file, Evaluator(mode).evaluate, ("id", "stored", "asked"))


@cache.command()
@common
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@MODE
def replay(context: Context, file: Path, mode: str) -> None:
    """Play a stream of questions in order, each stored unless it hit.

    FILE: JSON lines {"id", "asked"}; out come {"id", "hit", "match", "score"}, match being the id of the row whose
    answer would have been served.
    """
    _stream(file, Evaluator(mode).replay, ("id", "asked"))


@cache.command()
@common
@click.option("--team", required=True, help="Whose answers.")
@click.option("--tag", help="Only those stored with this x-thriftgate-cache-tags tag.")
@click.option("--older-than", help="Only those older than e.g. 12h.")
@click.option("--yes", is_flag=True, help="Really forget them.")
def flush(context: Context, team: str, tag: str | None, older_than: str | None, yes: bool) -> None:
    """Forget a team's cached answers on the running gateway.

    Without --yes they are only counted.
    """
    try:
        age_s = parse_duration(older_than) if older_than else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--older-than") from error
    settings = context.settings()

    async def flushed(room: Cache) -> int:
        return await room.flush(team, tag=tag, older_than_s=age_s, dry_run=not yes)

    count = _on_state(settings, flushed)
    done = f"{count} answer(s) of team {team} flushed."
    context.print(
        {"team": team, "answers": count, "flushed": yes},
        done if yes else f"{count} answer(s) of team {team} would be flushed; add --yes to do it.",
    )


def _on_state(settings: Settings, work: Callable[[Cache], Any]) -> Any:
    """Run `work` on a cache that follows the state of the running gateway."""

    async def run() -> Any:
        state = State(settings.config.state.redis_url or f"unix://{settings.paths.socket}", timeout_s=2.0)
        room = Cache(state, IndexLog(state, "cache"), None)
        try:
            await state.open()
            await state.call("GET", state.key("epoch"))  # says at once why, if there is no server
            await room.open()
            await room.caught_up(CATCH_UP_S)
            return await work(room)
        except StateUnavailable as error:
            raise click.ClickException(
                f"The gateway's state cannot be reached ({error}); is the gateway running on this --data-dir?"
            ) from error
        finally:
            await room.aclose()
            await state.aclose()

    return asyncio.run(run())


def _stream(file: Path, work: Callable[[Iterable[Row]], Iterator[dict[str, Any]]], keys: tuple[str, ...]) -> None:
    lines = file.read_bytes().splitlines()
    with Progress(transient=True, console=None, disable=not sys.stderr.isatty()) as progress:
        rows = _rows(lines, keys)
        for found in progress.track(work(rows), total=len(lines), description=file.name):
            sys.stdout.buffer.write(orjson.dumps(found) + b"\n")


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
