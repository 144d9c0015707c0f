"""Finds unused tools, output limits that are too large, and recurring instructions in stored responses. Only responses
of teams with `data.store_prompts` are stored, and only those of the Responses API."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import Connection, select

from gateway.context.estimate import estimate
from gateway.ledger.reports.advice import DAY_S, MONTH_S, Finding, Overview
from gateway.state.sql.tables import responses

MOST_RESPONSES = 5_000
"""Maximum number of responses of a team that are read, the newest first."""
_LEAST_RESPONSES = 20
"""A finding about a tool, an output limit or instructions needs at least this number of responses that had it."""
_CALLED_BY_NAME = frozenset({"function", "custom"})
"""Types of tools whose calls have the tool's name."""
_LEAST_TOKENS = 1024
"""Minimum tokens of recurring instructions."""
_OVERSIZED = 4
"""A limit is too large if it is more than this number of times the longest answer."""


@dataclass(slots=True)
class Seen:
    """Statistics of a team's stored responses."""

    responses: int = 0
    begin: float = 0.0
    end: float = 0.0
    offered: Counter[str] = field(default_factory=Counter)
    """Name of a tool → number of requests that offered it."""
    called: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, int] = field(default_factory=dict)
    """Name of a tool, or digest of instructions → estimated tokens."""
    limits: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """`max_output_tokens` → output tokens of the answers."""
    instructions: Counter[str] = field(default_factory=Counter)
    """Digest of instructions → number of requests that have them."""
    input_tokens: int = 0


def read(connection: Connection, team: str, since: float) -> Seen:
    """Read the responses of `team` that were stored at `since` (Unix seconds) or later, and return their
    statistics.
    """
    c = responses.c
    query = select(c.created_at, c.body).where(c.team == team, c.created_at >= since)
    seen = Seen()
    for at, packed in connection.execute(query.order_by(c.created_at.desc()).limit(MOST_RESPONSES)):
        seen.responses += 1
        seen.begin, seen.end = at, seen.end or at
        _note(seen, orjson.loads(zlib.decompress(packed)))
    return seen


def _note(seen: Seen, body: dict[str, Any]) -> None:
    for tool in _objects(body.get("tools")):
        if tool.get("type") in _CALLED_BY_NAME and (name := str(tool.get("name") or "")):
            seen.offered[name] += 1
            seen.sizes[name] = estimate(orjson.dumps(tool).decode())
    seen.called.update(str(item.get("name")) for item in _objects(body.get("output")) if "name" in item)
    usage = body.get("usage")
    usage = usage if type(usage) is dict else {}
    seen.input_tokens += int(usage.get("input_tokens") or 0)
    if type(limit := body.get("max_output_tokens")) is int:
        seen.limits[limit].append(int(usage.get("output_tokens") or 0))
    if type(text := body.get("instructions")) is str and text:
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        seen.instructions[digest] += 1
        seen.sizes[digest] = estimate(text)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (each for each in value if type(each) is dict) if type(value) is list else iter(())


def advise(view: Overview, seen: Seen) -> Iterable[Finding]:
    """The findings about one team. Their tokens are priced at the mean price of the team's input tokens in the
    ledger (`view`).
    """
    month_per_token = view.token_pico * MONTH_S / max(DAY_S, seen.end - seen.begin)
    yield from _unused(view.team, seen, month_per_token)
    yield from _limits(view.team, seen)
    yield from _instructions(view.team, seen, month_per_token)


def _unused(team: str, seen: Seen, month_per_token: float) -> Iterator[Finding]:
    for name, requests in seen.offered.items():
        if requests >= _LEAST_RESPONSES and name not in seen.called:
            tokens = seen.sizes[name]
            text = f"No answer called it. Its definition has about {tokens} tokens in each of {requests} requests."
            yield Finding(team, "unused tool", name, requests, tokens * requests * month_per_token, text)


def _limits(team: str, seen: Seen) -> Iterator[Finding]:
    for limit, answers in seen.limits.items():
        longest = max(answers)
        if len(answers) >= _LEAST_RESPONSES and limit > _OVERSIZED * max(1, longest):
            text = (
                f"The longest of {len(answers)} answers had {longest} tokens. The limit costs nothing by itself, but "
                "budgets hold money for it, and providers subtract it from the rate limit."
            )
            yield Finding(team, "max_output_tokens", str(limit), len(answers), 0.0, text)


def _instructions(team: str, seen: Seen, month_per_token: float) -> Iterator[Finding]:
    for digest, requests in seen.instructions.most_common():
        tokens = seen.sizes[digest]
        if requests >= _LEAST_RESPONSES and tokens >= _LEAST_TOKENS:
            text = (
                f"{requests} requests have equal instructions of about {tokens} tokens, which are "
                f"{tokens * requests / max(1, seen.input_tokens):.0%} of the input of all stored responses."
            )
            yield Finding(team, "recurring instructions", digest, requests, tokens * requests * month_per_token, text)
