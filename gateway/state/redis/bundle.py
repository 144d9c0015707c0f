"""Writes many small values in one command, as a hash whose fields expire together."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.state.redis.connection import Script, State

MOST_FIELDS = 1000
"""Maximum fields in one call, because Lua passes at most a few thousand arguments."""

_PUT = Script(
    "bundle",
    """
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
""",
)
"""One script for two commands. With two separate commands, a writer that dies between them would leave values that
never expire."""


async def put(state: State, key: str, fields: Iterable[tuple[str | bytes, bytes]], ttl_s: float) -> None:
    """Set at most `MOST_FIELDS` fields in the bundle `key`. The whole bundle expires after `ttl_s` seconds. Raises
    StateUnavailable."""
    words = [word for field in fields for word in field]
    if words:
        await state.run(_PUT, (key,), (max(1, int(ttl_s * 1000)), *words))


async def get(state: State, key: str, field: str | bytes) -> bytes | None:
    """The value of one field of the bundle `key` (a hash on the state server); None if missing. Raises
    StateUnavailable."""
    value: bytes | None = await state.call("HGET", key, field)
    return value
