"""The heads of this host's chains in a file beside the database, so that a truncated ledger is detected.

The file may lag behind the database, by what a crash between commit and anchor leaves; it never leads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from gateway.ledger.store.chain import Head

NAME = "ledger.anchor"


@dataclass(frozen=True, slots=True)
class Anchors:
    """`current` is the chain that is written now; the others ended when their database was replaced or cut."""

    current: str
    heads: Mapping[str, Head]
    at: Mapping[str, float]
    """Unix seconds."""


def beside(journal: Path) -> Path:
    """Where the anchors of the writer lie that drains the journals of this directory."""
    return journal.with_name(NAME)


def read(path: Path) -> Anchors | None:
    """None when there is no such file. Raises OSError, and ValueError when it is damaged."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        said = orjson.loads(text)
        heads = {name: Head(name, one["seq"], bytes.fromhex(one["hash"])) for name, one in said["chains"].items()}
        return Anchors(said["current"], heads, {name: one["at"] for name, one in said["chains"].items()})
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"{path}: is damaged ({error!r})") from error


def write(path: Path, head: Head, now: float) -> None:
    """Make `head` the current one; it is on the disk when this returns. Raises OSError, ValueError."""
    known = read(path)
    chains = {}
    if known is not None:  # one without an entry may never have come to be
        chains = {name: _entry(one, known.at[name]) for name, one in known.heads.items() if one.seq}
    chains[head.chain] = _entry(head, now)
    hidden = path.with_suffix(".new")
    with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(orjson.dumps({"current": head.chain, "chains": chains}, option=orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _entry(head: Head, at: float) -> dict[str, int | str | float]:
    return {"seq": head.seq, "hash": head.hash.hex(), "at": at}
