"""Keeps the decisions about tool definitions on the state server, so that all workers make the same ones."""

from __future__ import annotations

from gateway.state.redis.connection import State

_KEPT_S = 86400


class SharedMemory:
    """Implements `Memory` of load_out.py."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def read(self, session: bytes, backend: str) -> tuple[bytes | None, bool]:
        decided, cached = self._keys(session, backend)
        stored, alive = await self._state.pipeline((("GET", decided), ("GET", cached)))
        return stored, alive is not None

    async def write(self, session: bytes, backend: str, decided: bytes, cached_s: float) -> None:
        key, cached = self._keys(session, backend)
        await self._state.pipeline(
            (("SET", key, decided, "EX", _KEPT_S), ("SET", cached, "1", "EX", max(1, int(cached_s))))
        )

    def _keys(self, session: bytes, backend: str) -> tuple[str, str]:
        tag = session.hex()
        return self._state.key("tools", backend, tag=tag), self._state.key("cached", backend, tag=tag)
