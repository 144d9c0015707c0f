"""Keeps the notes about old turns on the state server, because any worker may get the next request of a session.

The entries of a session expire a day after its last request. If they are lost, the old turns are sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.context.strategies.keep_alive import share_of_returns
from gateway.context.strategies.old_turns import Notes, loaded
from gateway.state.redis.connection import State

_KEPT_S = 86400
_CLAIMED_S = 6 * 3600
"""Seconds for which no other call is made for the same turns of a session, whether the call succeeds or not."""
_LEARNED_S = 90 * 86400
_RETURNS = ((600, 0.6), (3000, 0.35), (float("inf"), 0.25))
"""(Seconds, share): the assumed share of sessions that continue within a day after a pause of up to this many seconds.
In the first half of the recorded sessions, 65 % continued after 5 minutes, 34 % after 30 and 25 % after an hour."""
_USED = b"used:"


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored facts about a session."""

    notes: tuple[Notes, ...]
    used: frozenset[str]
    """Digests of the histories whose notes were sent to this backend."""
    cached: bool
    """Whether the provider's cache may still have the prompt."""


class NotesStore:
    """Stores the notes of sessions on the state server. Every method may raise StateUnavailable. `conversation`:
    digest of the API key, the end user and the session.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    async def read(self, conversation: bytes, backend: str) -> Stored:
        notes, cached = self._key(conversation, "notes"), self._key(conversation, "cached", backend)
        fields, alive = await self._state.pipeline((("HGETALL", notes), ("GET", cached)))
        entries: dict[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=True))
        found = [loaded(value) for name, value in entries.items() if not name.startswith(_USED)]
        used = [name for name in entries if name.startswith(_used(backend))]
        return Stored(
            tuple(each for each in found if each is not None),
            frozenset(name[len(_used(backend)) :].decode() for name in used),
            alive is not None,
        )

    async def use(self, conversation: bytes, backend: str, notes: Iterable[Notes]) -> None:
        """Store that the notes are sent to `backend` from now on."""
        key = self._key(conversation, "notes")
        await self._state.pipeline([("HSET", key, _used(backend) + each.history.encode(), b"1") for each in notes])

    async def add(self, conversation: bytes, notes: Notes, valid: Iterable[Notes], stored: Stored) -> None:
        """Store new notes. Forget the `stored` notes that are not in `valid`, because the client rewrote the history
        to which they belong.
        """
        key = self._key(conversation, "notes")
        stale = {each.history for each in stored.notes} - {each.history for each in valid}
        commands: list[tuple[str | bytes | int | float, ...]] = [("HDEL", key, history) for history in sorted(stale)]
        commands += [("HSET", key, notes.history, notes.dumped()), ("EXPIRE", key, _KEPT_S)]
        await self._state.pipeline(commands)

    async def claim(self, conversation: bytes, history: str) -> bool:
        """Claim the task of writing notes about the turns with the digest `history`. Returns True if no worker has
        claimed it before.
        """
        claim = self._key(conversation, "claim", history)
        return await self._state.call("SET", claim, "1", "EX", _CLAIMED_S, "NX") is not None

    async def asked(self, conversation: bytes, request_id: str, backend: str, cached_s: float, team: str) -> None:
        """Store the session's last request. If the session had paused, count that it has continued. `cached_s`:
        seconds for which the provider's cache keeps the prompt.
        """
        last, paused = self._key(conversation, "last"), self._key(conversation, "paused")
        *_, wait, _ = await self._state.pipeline(
            (
                ("SET", last, request_id, "EX", _KEPT_S),
                ("SET", self._key(conversation, "cached", backend), "1", "EX", max(1, int(cached_s))),
                ("EXPIRE", self._key(conversation, "notes"), _KEPT_S),
                ("GET", paused),
                ("DEL", paused),
            )
        )
        if wait is not None:
            await self._state.call("HINCRBY", self._learned(team), f"yes_{wait.decode()}", 1)

    async def paused(self, conversation: bytes, request_id: str, team: str, wait_s: float) -> float | None:
        """Count that the session pauses. Returns the share of the team's sessions that continue after such a pause, or
        None if this session has continued since the request. `wait_s`: length of the pause so far.
        """
        if await self._state.call("GET", self._key(conversation, "last")) != request_id.encode():
            return None
        wait, prior = next((place, share) for place, (most, share) in enumerate(_RETURNS) if wait_s <= most)
        await self._state.call("SET", self._key(conversation, "paused"), str(wait), "EX", _KEPT_S)
        learned, seen = self._learned(team), f"seen_{wait}"
        _, _, known = await self._state.pipeline(
            (
                ("HINCRBY", learned, seen, 1),
                ("EXPIRE", learned, _LEARNED_S),
                ("HMGET", learned, seen, f"yes_{wait}"),
            )
        )
        return share_of_returns(prior, int(known[0] or 0) - 1, int(known[1] or 0))

    def _key(self, conversation: bytes, *parts: str) -> str:
        return self._state.key(*parts, tag=f"old_turns/{conversation.hex()}")

    def _learned(self, team: str) -> str:
        return self._state.key("old_turns", "returns", team)


def _used(backend: str) -> bytes:
    return _USED + backend.encode() + b":"
