"""`thriftgate distil`: exports a team's kept samples as training data for a model of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli import tables
from gateway.cli.echo import counted
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.ledger.store import samples
from gateway.ledger.store.samples import KeptSample

TEAM = click.option("--team", required=True, help="The team whose samples are meant.")


@click.group()
def distil() -> None:
    """Export or delete the compared requests that a team keeps (data.store_samples in its policy)."""


@distil.command(short_help="Write a team's samples as chat, JSON lines.")
@common
@TEAM
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File to write.")
@click.option("--traffic-class", "kinds", multiple=True, help="Only this traffic class. May be given several times.")
def export(context: Context, team: str, out: Path, kinds: tuple[str, ...]) -> None:
    """Write the samples of a team as training data: one chat per line, which ends with the reference's answer.

    A line has `messages`, the `tools` that the request offered, and `logprobs` if the reference gave
    log-probabilities. Samples whose reference answer is incomplete or refused are left out.

    \b
    thriftgate distil export --team search --out chats.jsonl
    """
    settings = context.of_running()
    with open_database(settings, existing=True) as database, database.read() as connection:
        known_team(database, settings, team)
        found = list(samples.read(connection, team, time.time()))
    wanted = [one for one in found if not kinds or one.traffic_class in kinds]
    try:
        written = _write(out, _chats(wanted))
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror}; nothing was changed.") from error
    left = len(wanted) - written
    context.print(
        {"written": written, "left_out": left},
        lambda: tables.sentences(
            f"{counted(written, 'chat')}: {out}",
            *([f"{counted(left, 'sample')} had no usable answer."] if left else []),
        ),
    )


@distil.command(short_help="Delete a team's samples.")
@common
@TEAM
def forget(context: Context, team: str) -> None:
    """Delete all samples of a team at once. Without this command, samples are deleted when `data.store_samples`
    has passed."""
    settings = context.of_running()
    with open_database(settings, existing=True) as database:
        known_team(database, settings, team)
        with database.begin() as connection:
            gone = samples.forget(connection, team)
    context.print({"deleted": gone}, f"{counted(gone, 'sample')} deleted.")


def _write(out: Path, chats: Iterable[dict[str, Any]]) -> int:
    """Write one line per chat to a file. An older file is replaced only after all lines were written. Raises
    OSError."""
    fresh, written = out.with_name(out.name + ".new"), 0
    with fresh.open("wb") as lines:
        for chat in chats:
            lines.write(orjson.dumps(chat) + b"\n")
            written += 1
    fresh.replace(out)
    return written


def _chats(found: Iterable[KeptSample]) -> Iterator[dict[str, Any]]:
    for one in found:
        answer = one.answers[0]
        choice = answer["choices"][0] if answer["choices"] else {}
        message = choice.get("message") or {}
        if answer["finish"] not in ("stop", "tool_calls") or message.get("refusal") or not _says(message):
            continue
        spoken = {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name) is not None}
        chat = {"messages": [*one.request["messages"], {"role": "assistant", **spoken}]}
        chat |= {name: one.request[name] for name in ("tools",) if name in one.request}
        yield chat | ({"logprobs": choice["logprobs"]} if choice.get("logprobs") else {})


def _says(message: dict[str, Any]) -> bool:
    return bool(message.get("content") or message.get("tool_calls"))
