"""The dimensions by which reports can be grouped, and the texts that reports show for their values."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Integer, cast, func

COLUMNS = {
    "team": "team",
    "key": "key_id",
    "model": "model",
    "backend": "backend",
    "day": "at",
    "hour": "at",
    "tag": "tags",
    "tier": "tier",
    "dialect": "dialect",
    "cache": "cache",
    "organisation": "organisation",
    "cost_centre": "cost_centre",
    "end_user": "end_user",
    "session": "session",
    "agent": "agent",
    "class": "traffic_class",
    "region": "region",
    "outcome": "outcome",
    "service_tier": "service_tier",
}
"""Dimension → the ledger's column."""
TAG = "tag:"
"""Prefix of a dimension that groups by the values of one tag, such as `tag:project`. Its groups add up to the total. In
contrast, the dimension `tag` counts a request once for each of its tags."""
CACHE = "(cache)"
"""Backend, model and tier shown for answers from the cache."""
STANDARD = "standard"
"""Name shown for the standard service tier, which the ledger stores as empty text."""
_SECONDS = {"day": 86400, "hour": 3600}
_QUARTER_S = 900
"""Days and hours of a time zone consist of whole quarter hours of UTC."""


def dimensions(by: str) -> tuple[str, ...]:
    """Parse a list of dimensions: `"team,model"` → `("team", "model")`. Raises ValueError for an unknown dimension."""
    names = tuple(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    unknown = [name for name in names if name not in COLUMNS and not (name.startswith(TAG) and name != TAG)]
    if unknown or not names:
        known = ", ".join([*COLUMNS, f"{TAG}NAME"])
        raise ValueError(f"cannot group by {by!r}; use one or more of {known}, separated by commas")
    return names


def column(table: Any, name: str, *, sqlite: bool, zone: tzinfo = UTC) -> ColumnElement[Any]:
    """The SQL expression for the dimension `name`. `table`: the ledger, or a subquery with the ledger's columns.
    `zone`: the time zone of the dimensions `day` and `hour`. If `zone` is not UTC, the expression gives the number of
    the quarter hour since 1970, and `written` converts this number to the day or hour."""
    found: ColumnElement[Any] = table.c["tags" if name.startswith(TAG) else COLUMNS[name]]
    if (seconds := _SECONDS.get(name)) is None:
        return found
    steps = found / (seconds if zone is UTC else _QUARTER_S)
    # SQLite may lack FLOOR. PostgreSQL's CAST rounds.
    return cast(steps, Integer) if sqlite else cast(func.floor(steps), Integer)


def written(by: tuple[str, ...], values: tuple[str, ...], zone: tzinfo = UTC) -> list[tuple[str, ...]]:
    """Convert the values of one group to the texts that reports show. With the dimension `tag`, the result has one
    element for each tag. `by`: the dimensions of `values`. `zone`: the time zone of the dimensions `day` and `hour`."""
    groups: list[tuple[str, ...]] = [()]
    for name, value in zip(by, values, strict=True):
        groups = [(*group, one) for group in groups for one in _written(name, value, zone)]
    return groups


def _written(name: str, value: str, zone: tzinfo) -> list[str]:
    if (seconds := _SECONDS.get(name)) is not None:
        at = datetime.fromtimestamp(int(value) * (seconds if zone is UTC else _QUARTER_S), zone)
        if name == "day":
            return [at.date().isoformat()]
        return [at.replace(minute=0).isoformat(timespec="minutes").replace("+00:00", "Z")]
    match name:
        case "tag":
            return [f"{tag}={text}" for tag, text in orjson.loads(value).items()] or [""]
        case "model" | "backend" | "tier":
            return [value or CACHE]
        case "service_tier":
            return [value or STANDARD]
    if name.startswith(TAG):
        return [str(orjson.loads(value).get(name.removeprefix(TAG), ""))]
    return [value]
