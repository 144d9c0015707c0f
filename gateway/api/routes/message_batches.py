"""Anthropic's routes for message batches."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.batches import asked_once, common_headers
from gateway.api.routes.query import whole_number
from gateway.api.server.asgi import by_name, check_json
from gateway.api.server.upload import Uploads
from gateway.batches.batch import Batch
from gateway.batches.files import MAX_BYTES, Files, Page
from gateway.batches.forms import FORMS, MESSAGES
from gateway.batches.inline import Requests
from gateway.batches.message_jobs import MessageJobs, archived
from gateway.batches.run import QUERY
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest

PATH = f"{MESSAGES}/batches"
_STATUS = {"cancelling": "canceling", "completed": "ended", "cancelled": "ended", "expired": "ended"}
_MOST = 1000


def shown(batch: Batch, base: str) -> dict[str, Any]:
    """The batch as Anthropic's MessageBatch. `base`: the gateway's address as the client sees it."""
    gone = archived(batch, time.time())
    there = batch.finished_at is not None and not gone
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": _STATUS.get(batch.status, "in_progress"),
        "request_counts": counts(batch),
        "created_at": moment(batch.created_at),
        "expires_at": moment(batch.expires_at),
        "ended_at": moment(batch.finished_at),
        "cancel_initiated_at": moment(batch.cancelling_at),
        "archived_at": moment(batch.kept_until) if gone else None,
        "results_url": f"{base}{PATH}/{batch.id}/results" if there else None,
    }


def counts(batch: Batch) -> dict[str, int]:
    """The numbers of requests by state. As Anthropic's clients expect, all requests count as processing until all of
    them have ended."""
    found = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.finished_at is None:
        found["processing"] = batch.total
        return found
    found["succeeded"] = batch.completed
    found["errored"] = batch.failed - (batch.unsent or 0)
    if batch.status in ("cancelled", "expired"):
        ending = "canceled" if batch.status == "cancelled" else "expired"
        found[ending] = batch.total - found["succeeded"] - found["errored"]
    return found


def moment(at: float | None) -> str | None:
    """The time in RFC 3339 format."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def reached(request: Request) -> str:
    """The gateway's address as the client sees it. Behind a proxy, it comes from the headers `x-forwarded-*`."""
    url = request.base_url
    scheme = request.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    host = request.headers.get("x-forwarded-host", "").split(",")[0].strip()
    scheme = scheme if scheme in ("http", "https") else url.scheme
    return f"{scheme}://{host or url.netloc}{url.path.rstrip('/')}"


class MessageBatchRoutes:
    """Starlette endpoints for Anthropic's message batches. A key sees its own batches, and those that its team's
    policy shares.
    """

    def __init__(
        self, *, authenticator: Authenticator, files: Files, jobs: MessageJobs, uploads: Uploads, max_request_bytes: int
    ) -> None:
        self._files, self._jobs, self._uploads, self._max_request_bytes = files, jobs, uploads, max_request_bytes
        inference = authenticator.needs("inference")
        self.routes = [
            Route(PATH, inference(self.create), methods=["POST"]),
            Route(PATH, inference(self.list_batches)),
            Route(f"{PATH}/{{id}}", inference(self.delete), methods=["DELETE"]),
            Route(f"{PATH}/{{id}}", inference(self.batch)),
            Route(f"{PATH}/{{id}}/cancel", inference(self.cancel), methods=["POST"]),
            Route(f"{PATH}/{{id}}/results", inference(self.results)),
        ]

    async def create(self, request: Request, tenant: Tenant) -> Response:
        check_json(by_name(request.scope["headers"]))
        headers = common_headers(request, tenant)
        if request.scope["query_string"]:
            headers[QUERY.decode()] = request.scope["query_string"].decode("latin-1")
        async with self._files.upload() as upload:
            requests = Requests(upload.write, self._max_request_bytes, FORMS[MESSAGES].most)
            await self._uploads.receive(request, requests.feed, MAX_BYTES)
            requests.close()
            once = asked_once(request, tenant, upload.digest.hexdigest())
            batch = await self._jobs.create(tenant, upload, headers, once)
        return json_response(shown(batch, reached(request)))

    async def list_batches(self, request: Request, tenant: Tenant) -> Response:
        asked = request.query_params
        limit = whole_number(asked, "limit", 20, _MOST)
        after, before = asked.get("after_id", ""), asked.get("before_id", "")
        if after and before:
            raise BadRequest("before_id: leave it out when there is an after_id.", param="before_id")
        # Newest first; the page before an id is read in the opposite order.
        found = await self._jobs.page(tenant.viewer, Page(limit, after or before, ascending=bool(before)))
        page, more = found[:limit], len(found) > limit
        data = [shown(batch, reached(request)) for batch in (reversed(page) if before else page)]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return json_response({"data": data, "has_more": more, "first_id": first, "last_id": last})

    async def batch(self, request: Request, tenant: Tenant) -> Response:
        batch = await self._jobs.get(tenant.viewer, request.path_params["id"])
        return json_response(shown(batch, reached(request)))

    async def cancel(self, request: Request, tenant: Tenant) -> Response:
        batch = await self._jobs.cancel(tenant.viewer, request.path_params["id"])
        return json_response(shown(batch, reached(request)))

    async def delete(self, request: Request, tenant: Tenant) -> Response:
        batch_id = request.path_params["id"]
        await self._jobs.delete(tenant.viewer, batch_id)
        return json_response({"id": batch_id, "type": "message_batch_deleted"})

    async def results(self, request: Request, tenant: Tenant) -> Response:
        pieces = await self._jobs.results(tenant.viewer, request.path_params["id"])
        return StreamingResponse(pieces, media_type="application/x-jsonl")
