"""Knows which sessions are idle, and how often idle sessions continue. Both facts are stored on the state server,
because the next request of a session may reach another worker.
"""

from __future__ import annotations

from gateway.context.strategies.keep_alive import RETURNS_AGENT, RETURNS_ALONE, share_of_returns
from gateway.domain.prompt_cache import SHORT_S
from gateway.state.redis.connection import State

_LAST_S = 900
"""Seconds for which the last request of a session is remembered. It must exceed the time until a call is sent."""
_LEARNED_S = 90 * 86400


class Returns:
    """The last request of each session, and the share of idle sessions that continue, by team."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def asked(self, session: bytes, request_id: str, team: str, *, agent: bool) -> None:
        """Store the session's last request. If the session was idle, count that it has continued. Raises
        StateUnavailable."""
        last, idle = self._keys(session)
        _, was_idle, _ = await self._state.pipeline(
            (("SET", last, request_id, "EX", _LAST_S), ("GET", idle), ("DEL", idle))
        )
        if was_idle:
            await self._state.call("HINCRBY", self._key(team), _field("yes", agent=agent), 1)

    async def idle(self, session: bytes, request_id: str, team: str, *, agent: bool) -> float | None:
        """Count that the session is idle, and return the share of the team's idle sessions that continue within
        five minutes.

        Returns None if this session has continued since the request. Raises StateUnavailable.
        """
        last, idle = self._keys(session)
        if await self._state.call("GET", last) != request_id.encode():
            return None
        learned, seen, yes = self._key(team), _field("seen", agent=agent), _field("yes", agent=agent)
        await self._state.call("SET", idle, "1", "EX", int(SHORT_S))
        _, _, known = await self._state.pipeline(
            (("HINCRBY", learned, seen, 1), ("EXPIRE", learned, _LEARNED_S), ("HMGET", learned, seen, yes))
        )
        prior = RETURNS_AGENT if agent else RETURNS_ALONE
        return share_of_returns(prior, int(known[0] or 0) - 1, int(known[1] or 0))

    def _keys(self, session: bytes) -> tuple[str, str]:
        tag = f"keep_alive/{session.hex()}"
        return self._state.key("last", tag=tag), self._state.key("idle", tag=tag)

    def _key(self, team: str) -> str:
        return self._state.key("keep_alive", "returns", team)


def _field(what: str, *, agent: bool) -> str:
    return f"{'agent' if agent else 'alone'}_{what}"
