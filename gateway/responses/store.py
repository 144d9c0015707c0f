"""Stored responses in SQL. Until a response expires, only its owner (a key or a whole team) can read it."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, Select, and_, delete, func, insert, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.tenant import Tenant, Viewer
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from gateway.state.sql.ownership import seen_by
from gateway.state.sql.tables import response_items, responses

log = logging.getLogger(__name__)

Item = dict[str, Any]

KEPT_S = 30 * 86400.0
"""Seconds for which a response is kept. OpenAI keeps responses as long."""
MAX_BYTES = 32 * 2**20
"""Maximum bytes of a response with all its input, before compression. A larger response is not stored."""
TEAM_BYTES = 2 * 2**30
"""Maximum bytes of the stored responses of a team. Beyond it, the team's oldest responses are deleted, because a full
disk would stop all requests."""
TIDY_S = 600.0
WRITE_S = 2.0
"""Maximum seconds by which storing a response delays the end of a client's answer."""
READ_S = 5.0
_ID_LENGTH = 128


@dataclass(frozen=True, slots=True)
class StoredResponse:
    id: str
    session: str
    """The id of the session to which the whole conversation belongs."""
    body: Item
    """The Response object that the client received."""
    input: list[Item]
    """All input items of the request, with the items of earlier responses in the conversation."""

    @property
    def conversation(self) -> list[Item]:
        """The input and the output items of this response. A follow-up request's input begins with them."""
        return [*self.input, *self.body["output"]]


class Responses:
    """Reads and writes stored responses. A response of another owner is treated as if it did not exist."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """`clock`: function that returns Unix seconds."""
        self._database, self._clock = database, clock
        self._tasks = Tasks()
        self._counts = {"stored": 0, "unstored": 0, "resolved": 0, "expired": 0}

    async def open(self) -> None:
        self._tasks.spawn(self._tidy(), "stored-responses")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def stats(self) -> dict[str, int | float | str]:
        return dict(self._counts)

    async def put(self, tenant: Tenant, stored: StoredResponse) -> bool:
        """Store a response, unless a response with its id is stored already. Returns False if the response is too
        large or its id too long. Raises SQLAlchemyError.
        """
        kept = len(stored.id) <= _ID_LENGTH and await self._database.run(
            lambda link: _put(link, tenant, stored, self._clock()), timeout_s=WRITE_S
        )
        self._counts["stored" if kept else "unstored"] += 1
        return kept

    async def find(self, viewer: Viewer, response_id: str) -> StoredResponse | None:
        """The response; None if it does not exist, has expired, or `viewer` may not see it. Raises SQLAlchemyError."""
        found = await self._database.run(
            lambda link: _find(link, viewer, response_id, self._clock()), timeout_s=READ_S, writes=False
        )
        self._counts["resolved"] += found is not None
        return found

    async def items(self, viewer: Viewer, ids: Iterable[str]) -> dict[str, Item]:
        """Find output items by their `ids`. Returns id → item, without unknown items and those that `viewer` may
        not see. Raises SQLAlchemyError.
        """
        wanted = frozenset(ids)
        return await self._database.run(
            lambda link: _items(link, viewer, wanted, self._clock()), timeout_s=READ_S, writes=False
        )

    async def delete(self, viewer: Viewer, response_id: str) -> bool:
        """Delete a response. Returns False if no response with this id is visible to `viewer`. Raises
        SQLAlchemyError.
        """

        def work(link: Connection) -> bool:
            known = select(responses.c.id).where(responses.c.id == response_id, seen_by(responses, viewer))
            return link.scalar(known) is not None and _delete(link, viewer.team, [response_id]) > 0

        return await self._database.run(work)

    async def _tidy(self) -> None:
        while True:
            try:
                self._counts["expired"] += await self._database.run(lambda link: _expire(link, self._clock()))
            except SQLAlchemyError as error:
                log.warning("expired responses could not be deleted: %s", error)
            await asyncio.sleep(TIDY_S)


def _put(connection: Connection, tenant: Tenant, stored: StoredResponse, now: float) -> bool:
    team, owner = tenant.team, tenant.key.lineage
    given, body = orjson.dumps(stored.input), orjson.dumps(stored.body)
    if len(given) + len(body) > MAX_BYTES:
        return False
    if (
        connection.scalar(select(responses.c.id).where(responses.c.team == team, responses.c.id == stored.id))
        is not None
    ):
        return True
    packed = {"input": zlib.compress(given, 1), "body": zlib.compress(body, 1)}
    connection.execute(
        insert(responses).values(
            team=team,
            id=stored.id,
            owner=owner,
            session=stored.session,
            created_at=now,
            expires_at=now + KEPT_S,
            bytes=len(packed["input"]) + len(packed["body"]),
            **packed,
        )
    )
    ids = {item["id"] for item in stored.body["output"] if type(item.get("id")) is str}
    known = set(connection.scalars(_select_items(team, ids, response_items.c.id).where(responses.c.owner == owner)))
    rows = [
        {"team": team, "id": item_id, "response_id": stored.id}
        for item_id in sorted(ids - known)
        if len(item_id) <= _ID_LENGTH
    ]
    if rows:
        connection.execute(insert(response_items), rows)
    return True


def _select_items(team: str, ids: Iterable[str], *columns: Any) -> Select[Any]:
    """A query for `columns` of the items with these ids and of the responses to which the items belong."""
    same = and_(responses.c.team == response_items.c.team, responses.c.id == response_items.c.response_id)
    found = select(*columns).select_from(response_items.join(responses, same))
    return found.where(response_items.c.team == team, response_items.c.id.in_(sorted(ids)))


def _find(connection: Connection, viewer: Viewer, response_id: str, now: float) -> StoredResponse | None:
    query = select(responses).where(
        seen_by(responses, viewer), responses.c.id == response_id, responses.c.expires_at > now
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    body, given = (orjson.loads(zlib.decompress(packed)) for packed in (row.body, row.input))
    return StoredResponse(row.id, row.session, body, given)


def _items(connection: Connection, viewer: Viewer, ids: frozenset[str], now: float) -> dict[str, Item]:
    # If several keys got the same cached answer, several responses contain the same items; one of them is enough.
    query = _select_items(viewer.team, ids, func.min(response_items.c.response_id))
    query = query.where(seen_by(responses, viewer), responses.c.expires_at > now).group_by(response_items.c.id)
    found: dict[str, Item] = {}
    for response_id in set(connection.scalars(query)):
        if stored := _find(connection, viewer, response_id, now):
            found |= {item["id"]: item for item in stored.body["output"] if item.get("id") in ids}
    return found


def _delete(connection: Connection, team: str, ids: list[str]) -> int:
    connection.execute(
        delete(response_items).where(response_items.c.team == team, response_items.c.response_id.in_(ids))
    )
    return connection.execute(delete(responses).where(responses.c.team == team, responses.c.id.in_(ids))).rowcount


def _expire(connection: Connection, now: float) -> int:
    """Delete expired responses. If a team stores too much, also delete its oldest ones. Returns the number of
    deleted responses.
    """
    gone = 0
    teams = connection.execute(select(responses.c.team, func.sum(responses.c.bytes)).group_by(responses.c.team)).all()
    for team, held in teams:
        query = select(responses.c.id, responses.c.bytes, responses.c.expires_at).where(responses.c.team == team)
        over, ids = held - TEAM_BYTES, []
        for row in connection.execute(query.order_by(responses.c.created_at)):
            if row.expires_at > now and over <= 0:
                break
            ids.append(row.id)
            over -= row.bytes
        for start in range(0, len(ids), 500):
            gone += _delete(connection, team, ids[start : start + 500])
    return gone
