"""Writes many small values in one command, as a hash whose fields expire together."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.state.redis.connection import Script, State

MOST_FIELDS = 1000
"""Of one call: Lua can hand on no more than some thousands of words."""

_PUT = Script(
    "bundle",
    """
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
""",
)
"""One step, so that no writer that dies leaves values behind that never end."""


async def put(state: State, key: str, fields: Iterable[tuple[str | bytes, bytes]], ttl_s: float) -> None:
    """Set at most MOST_FIELDS fields; the whole bundle ends `ttl_s` from now. Raises StateUnavailable."""
    words = [word for field in fields for word in field]
    if words:
        await state.run(_PUT, (key,), (max(1, int(ttl_s * 1000)), *words))


async def get(state: State, key: str, field: str | bytes) -> bytes | None:
    """Raises StateUnavailable."""
    value: bytes | None = await state.call("HGET", key, field)
    return value
