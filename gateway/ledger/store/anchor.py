"""The anchor file beside the database. It contains the newest entry of each hash chain of this host. If someone deletes
the newest entries from the database, `verify` notices it by comparing the database with this file.

After a crash the file may be older than the database, but never newer.
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
    """The content of the anchor file. `heads`: chain → the chain's newest entry. `current`: the chain to which this
    host writes. The other chains ended when their databases were replaced."""

    current: str
    heads: Mapping[str, Head]
    at: Mapping[str, float]
    """Chain → Unix time at which its head was written."""


def beside(journal: Path) -> Path:
    """The path of the anchor file that belongs to the journal directory `journal`."""
    return journal.with_name(NAME)


def read(path: Path) -> Anchors | None:
    """Read the anchor file; None if it does not exist. Raises OSError, and ValueError if it is damaged."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        content = orjson.loads(text)
        heads = {name: Head(name, one["seq"], bytes.fromhex(one["hash"])) for name, one in content["chains"].items()}
        return Anchors(content["current"], heads, {name: one["at"] for name, one in content["chains"].items()})
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"{path}: is damaged ({error!r})") from error


def write(path: Path, head: Head, now: float) -> None:
    """Write `head` to the anchor file as the newest entry of the current chain, and flush the file to disk. Raises
    OSError, ValueError."""
    known = read(path)
    chains = {}
    if known is not None:  # a chain with `seq` 0 is left out: its first transaction may have failed
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
