"""For the Responses API: replaces references in a request with stored items before routing, and stores the response
when its answer ends."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import orjson
from sqlalchemy.exc import SQLAlchemyError

from gateway.dialects import json_splice
from gateway.dialects.openai_responses.request import kind_of, read_needs, read_turns
from gateway.dialects.requests.body_extent import check_extent
from gateway.dialects.requests.spans import any_item
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.domain.text.truncation import cut_apart
from gateway.errors import BadRequest, Overloaded, UnknownResponse
from gateway.responses.store import Item, Responses, StoredResponse
from gateway.runtime.off_loop import OffLoop

log = logging.getLogger(__name__)

_SESSION_LENGTH = 128


class StoredContext:
    """Stores responses of teams whose policy has `data.store_prompts`. Other teams must send the whole
    conversation.

    Backends are told not to store responses, because all teams share one account at the backend.
    """

    def __init__(self, responses: Responses, max_items: int, off_loop: OffLoop | None = None) -> None:
        """`max_items`: maximum number of objects and arrays in a request, including the inserted items."""
        self._responses, self._max_items = responses, max_items
        self._off_loop = off_loop or OffLoop()

    async def recall(self, request: CompletionRequest, tenant: Tenant) -> None:
        """Insert the stored items to which `request` refers: the earlier conversation, and single items.

        Raises BadRequest, UnknownResponse, BodyTooLarge; Overloaded if the database is unavailable.
        """
        body = request.body
        previous = body.get("previous_response_id")
        before = await self._previous(tenant, previous) if previous is not None else None
        given = await self._given(request, tenant)
        if before is not None:
            whole = {"input": [*before.conversation, *as_items(given)], "previous_response_id": None}
            await self._off_loop.run(_change, request, whole, self._max_items)
        elif given is not body.get("input"):
            await self._off_loop.run(_change, request, {"input": given}, self._max_items)
        request.store = tenant.policy.data.store_prompts and body.get("store") is not False
        request.echoed = {"store": request.store, "previous_response_id": previous}
        session = before.session if before is not None else body.get("prompt_cache_key")
        if not request.controls.session and type(session) is str and session:
            request.controls = request.controls._replace(session=cut_apart(session, _SESSION_LENGTH))

    async def _previous(self, tenant: Tenant, response_id: str) -> StoredResponse:
        if not tenant.policy.data.store_prompts:
            raise UnknownResponse(
                f"Previous response with id '{response_id}' not found: nothing is stored for this team "
                "(data.store_prompts in its policy). Send the whole conversation as input.",
                param="previous_response_id",
            )
        try:
            stored = await self._responses.find(tenant.viewer, response_id)
        except SQLAlchemyError as error:
            raise _away(error) from error
        if stored is None:
            raise UnknownResponse(f"Previous response with id '{response_id}' not found.", param="previous_response_id")
        return stored

    async def _given(self, request: CompletionRequest, tenant: Tenant) -> Any:
        """Return the request's input, with each reference to an item replaced by the stored item."""
        given = request.body.get("input")
        if type(given) is not list or not any_item(request, _is_reference):
            return given
        references = {place: item.get("id") for place, item in enumerate(given) if _is_reference(item)}
        for place, item_id in references.items():
            if type(item_id) is not str:
                where = f"input[{place}].id"
                raise BadRequest(f"{where} must be a string: the id of an item.", param=where)
        found = await self._items(tenant, [str(item_id) for item_id in references.values()])
        items = list(given)
        for place, item_id in references.items():
            if item_id not in found:
                where = f"input[{place}]"
                raise BadRequest(f"{where}: Item with id '{item_id}' not found; send the item itself.", param=where)
            items[place] = found[item_id]
        return items

    async def _items(self, tenant: Tenant, ids: Collection[str]) -> dict[str, Item]:
        if not tenant.policy.data.store_prompts:
            return {}
        try:
            return await self._responses.items(tenant.viewer, ids)
        except SQLAlchemyError as error:
            raise _away(error) from error

    async def keep(self, request: CompletionRequest, tenant: Tenant, answer: bytes | None) -> None:
        """Store the Response object `answer`. With None, nothing is stored: it was too long or incomplete.

        Call this before the client gets the end of the answer. Failures are only logged.
        """
        if answer is None:
            log.warning("the response of %s is too long or not complete enough to be stored", request.id)
            return
        try:
            body = orjson.loads(answer)
            if not all(type(item) is dict for item in body["output"]) or type(body["id"]) is not str:
                raise TypeError("its id is not a string, or its output is not a list of items")
            session = request.controls.session or body["id"]
            given = as_items(request.body.get("input"))
            stored = StoredResponse(body["id"], session, {**body, **request.echoed}, given)
            if not await self._responses.put(tenant, stored):
                log.warning("the response of %s is too large to be stored", request.id)
        except (SQLAlchemyError, LookupError, TypeError, ValueError) as error:
            log.warning("the response of %s was not stored: %r", request.id, error)


def _is_reference(item: Item) -> bool:
    return item.get("type") in (None, "item_reference") and kind_of(item) == "item_reference"


def as_items(given: Any) -> list[Item]:
    """A request's `input` as a list of items. A string becomes a user message."""
    if type(given) is str:
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return list(given or ())


def _change(request: CompletionRequest, changes: dict[str, Any], max_items: int) -> None:
    """Apply `changes` (field → new value) to the request's body. Raises BodyTooLarge if the changed body has more than
    `max_items` objects and arrays."""
    body = request.body
    request.raw = json_splice.splice(request.raw, body, {name: orjson.dumps(value) for name, value in changes.items()})
    check_extent(request.raw, max_items)
    request.body = body = {**{name: changes[name] for name in changes if name not in body}, **body, **changes}
    request.turns = read_turns(body)
    request.needs = read_needs(body, request.turns)


def _away(error: Exception) -> Overloaded:
    log.error("stored responses cannot be read: %s", error)
    return Overloaded("The gateway's database does not answer, so stored responses cannot be read; try again shortly.")
