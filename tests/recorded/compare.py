"""Where two recordings differ first, in words that name the exchange, the part and the place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]
_AROUND = 60
"""Characters shown before and after the first difference."""


def readable(row: Row) -> str:
    """An exchange as one would read it on the wire: `>` what the client sent, `|` what providers received, `<` what
    the client received."""
    parts = [(">", row["request"]), *(("|", each) for each in row["upstream"]), ("<", row["response"])]
    lines = [f"=== {row['name']}"]
    for sign, message in parts:
        body = message["body"] if isinstance(message["body"], str) else str(message["body"])
        lines += [f"{sign} {line}" for line in (*message["head"], "", *body.splitlines())]
    return "\n".join(lines) + ("\n(broken off here)\n" if row["response"].get("broken") else "\n")


def report(expected: Sequence[Row], found: Sequence[Row], *, most: int = 8) -> str:
    """The first difference of each of the first `most` exchanges that differ. Empty when all rows are equal."""
    names = [row["name"] for row in expected]
    replayed = {row["name"]: row for row in found}
    lines = [f"{name}: it was recorded, but no case is called so" for name in names if name not in replayed]
    lines += [f"{name}: there is no recording of it" for name in replayed if name not in set(names)]
    lines += [
        f"{row['name']}: {difference}"
        for row in expected
        if row["name"] in replayed and (difference := first_difference(row, replayed[row["name"]]))
    ]
    if len(lines) > most:
        lines = [*lines[:most], f"… and {len(lines) - most} more of {len(expected)} exchanges"]
    return "\n\n".join(lines)


def first_difference(expected: Row, found: Row) -> str:
    """Empty when the rows are equal."""
    for (where, before), (there, after) in zip(_parts(expected), _parts(found), strict=False):
        if where != there:
            return f"{where} was recorded where now {there} is"
        if before != after:
            return f"{where} differs{_place(before, after)}"
    was, now = list(_parts(expected)), list(_parts(found))
    if len(was) != len(now):
        longer = max(was, now, key=len)
        return f"{longer[min(len(was), len(now))][0]} is {'gone' if longer is was else 'new'}"
    return ""


def _parts(node: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a row, with its place: `response.head[3]`. A body comes before the `content-length` it changes."""
    if isinstance(node, dict):
        for name in sorted(node, key=lambda name: name != "body"):
            yield from _parts(node[name], f"{where}.{name}" if where else name)
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from _parts(value, f"{where}[{place}]")
    else:
        yield where, str(node)


def _place(before: str, after: str) -> str:
    at = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        at = min(len(before), len(after))
    start = max(0, at - _AROUND)
    return (
        f" at character {at}:\n  recorded: …{before[start : at + _AROUND]!r}…\n"
        f"  now:      …{after[start : at + _AROUND]!r}…"
    )
