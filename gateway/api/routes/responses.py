"""OpenAI's routes for stored responses: get, list input items, delete."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.query import whole_number
from gateway.dialects.openai_responses.request import RESULTS, kind_of
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, NotFound
from gateway.responses.store import Item, Responses, StoredResponse

_PAGE, _MOST = 20, 100
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_TEXTS = {"assistant": "output_text"}
_WHERE_SILENT: dict[str, Item] = {"output_text": {"annotations": []}, "input_image": {"detail": "auto"}}
"""Type of an input item → OpenAI's default values for fields that the client omitted."""


def shown_items(stored: StoredResponse) -> list[Item]:
    """The input items of a response, oldest first. Each item has an id that never changes."""
    return [_shown(item, f"{stored.id.removeprefix('resp_')}i{place}") for place, item in enumerate(stored.input)]


def _shown(item: Item, stem: str) -> Item:
    kind = kind_of(item)
    prefix = _PREFIXES.get(kind, "fco" if kind in RESULTS else "item")
    shown = {"id": f"{prefix}_{stem}", "type": kind, "status": "completed", **item}
    if kind == "message":
        shown["content"] = _parts(item)
    return shown


def _parts(item: Item) -> list[Item]:
    content = item["content"]
    if type(content) is str:
        content = [{"type": _TEXTS.get(item["role"], "input_text"), "text": content}]
    return [_part(part) for part in content]


def _part(part: Item) -> Item:
    return {**_WHERE_SILENT.get(part["type"], {}), **part}


def page(items: list[Item], asked: Any) -> dict[str, Any]:
    """The part of `items` (oldest first) that the query's `limit`, `after` and `order` select, as OpenAI's list. Raises
    BadRequest."""
    limit = whole_number(asked, "limit", _PAGE, _MOST)
    order, after = asked.get("order", "desc"), asked.get("after")
    if order not in ("asc", "desc"):
        raise BadRequest("order must be asc or desc.", param="order")
    ordered = items if order == "asc" else items[::-1]
    start = 0
    if after:
        start = next((place for place, item in enumerate(ordered, 1) if item["id"] == after), len(ordered))
    data = ordered[start : start + limit]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    more = start + len(data) < len(ordered)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more}


class ResponseRoutes:
    """Starlette endpoints for stored responses. A key sees its own responses, and those that its team's policy
    shares.
    """

    def __init__(self, *, authenticator: Authenticator, responses: Responses) -> None:
        self._responses = responses
        inference = authenticator.needs("inference")
        self.routes = [
            route
            for path in ("/v1/responses/{id}", "/responses/{id}")
            for route in (
                Route(path, inference(self.delete), methods=["DELETE"]),
                Route(path, inference(self.response)),
                Route(f"{path}/input_items", inference(self.input_items)),
                Route(f"{path}/cancel", inference(self.cancel), methods=["POST"]),
            )
        ]

    async def response(self, request: Request, tenant: Tenant) -> Response:
        if request.query_params.get("stream", "false") != "false":
            raise BadRequest("A stored response is not streamed again: leave stream out.", param="stream")
        return json_response((await self._stored(request, tenant)).body)

    async def input_items(self, request: Request, tenant: Tenant) -> Response:
        stored = await self._stored(request, tenant)
        return json_response(page(shown_items(stored), request.query_params))

    async def delete(self, request: Request, tenant: Tenant) -> Response:
        response_id = request.path_params["id"]
        if not await self._responses.delete(tenant.viewer, response_id):
            raise _unknown(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: Request, tenant: Tenant) -> Response:
        raise BadRequest("Cannot cancel a synchronous response: none are made in the background here.")

    async def _stored(self, request: Request, tenant: Tenant) -> StoredResponse:
        response_id = request.path_params["id"]
        stored = await self._responses.find(tenant.viewer, response_id)
        if stored is None:
            raise _unknown(response_id)
        return stored


def _unknown(response_id: str) -> NotFound:
    return NotFound(
        f"Response with id '{response_id}' not found; those of this key are kept for 30 days if its team's policy has "
        "data.store_prompts.",
        param="response_id",
    )
