"""OpenAI's routes for files and batches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.query import refuse, whole_number
from gateway.api.server.asgi import by_name, read_object
from gateway.api.server.multipart import receive_form
from gateway.api.server.upload import Uploads
from gateway.batches.batch import EACH_TIME, Batch, BatchFields
from gateway.batches.files import MAX_BYTES, Files, Page, StoredFile
from gateway.batches.jobs import Jobs
from gateway.batches.options import LONGEST_S, seconds
from gateway.dialects.controls import check_overrides, parse_controls
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, NotFound

PURPOSES = ("batch",)
KEY_CHARACTERS = 255
REQUEST_BYTES = 2**17
"""Maximum bytes of a request for a batch. Its metadata may have 9216 characters, each encoded in up to twelve bytes."""
FEATURES = (b"openai-beta", b"anthropic-beta", b"anthropic-version")


def shown_file(file: StoredFile) -> dict[str, Any]:
    """The file as OpenAI's File object."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at),
        "expires_at": file.expires_at and int(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def shown_batch(batch: Batch) -> dict[str, Any]:
    """The batch as OpenAI's Batch object."""
    moments = ("completed", "failed", "expired", "cancelled")
    ended = batch.finished_at and int(batch.finished_at)
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": {"object": "list", "data": orjson.loads(batch.errors)} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": int(batch.created_at),
        "in_progress_at": batch.started_at and int(batch.started_at),
        "expires_at": int(batch.expires_at),
        "finalizing_at": batch.finalizing_at and int(batch.finalizing_at),
        "cancelling_at": batch.cancelling_at and int(batch.cancelling_at),
        **{f"{status}_at": ended if batch.status == status else None for status in moments},
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": orjson.loads(batch.usage) if batch.usage else None,
        "metadata": orjson.loads(batch.metadata),
    }


def shown_list(found: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """The list `found` as a page in OpenAI's format. `limit`: maximum number of elements on the page.

    If `found` is longer than `limit`, the page says that there is a next one.
    """
    data = found[:limit]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": len(found) > limit}


def asked_expiry(fields: Mapping[str, str]) -> float:
    """The seconds for which an uploaded file is kept, according to the form; 30 days if the form does not say. Raises
    BadRequest.
    """
    anchor, length = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and length is None:
        return LONGEST_S
    return seconds(anchor, length, "expires_after[{}]")


def common_headers(request: Request, tenant: Tenant) -> dict[str, str]:
    """The headers of `request` that apply to all lines of a batch. Raises BadRequest or Forbidden if one of these
    headers would make every line fail."""
    headers = by_name(request.scope["headers"])
    check_overrides(parse_controls(headers), tenant.policy)
    kept = {name for name in headers if name in FEATURES or name.startswith(b"x-thriftgate-")}
    return {name.decode("latin-1"): headers[name].decode("latin-1") for name in sorted(kept)}


def asked_once(request: Request, tenant: Tenant, fingerprint: str) -> BatchFields:
    """Read `Idempotency-Key`, and return fields that are stored with the new batch. By these fields, a repeated request
    finds the batch of the first request.

    `fingerprint` identifies the content of the request. Raises BadRequest.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return EACH_TIME
    if not 0 < len(key) <= KEY_CHARACTERS:
        raise BadRequest(f"Idempotency-Key must have 1 to {KEY_CHARACTERS} characters.", param="Idempotency-Key")
    whose = "\0".join((tenant.team, tenant.key.lineage, request.url.path.removeprefix("/v1"), key))
    return BatchFields(blake2b(whose.encode(), digest_size=32).hexdigest(), fingerprint)


def asked_page(request: Request, default: int, most: int) -> Page:
    """The page that the query's `limit`, `after`, `order` and `purpose` select. Raises BadRequest."""
    asked = request.query_params
    limit, order = whole_number(asked, "limit", default, most), asked.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest("order must be asc or desc.", param="order")
    return Page(limit, asked.get("after", ""), order == "asc", asked.get("purpose", ""))


class BatchRoutes:
    """Starlette endpoints for files and batches. A key sees its own files and batches, and those that its team's
    policy shares.
    """

    def __init__(self, *, authenticator: Authenticator, files: Files, jobs: Jobs, uploads: Uploads) -> None:
        self._files, self._jobs, self._uploads = files, jobs, uploads
        inference = authenticator.needs("inference")
        self.routes = [
            route
            for prefix in ("/v1", "")  # some clients omit it, because OpenAI's base URL contains it
            for route in (
                Route(f"{prefix}/files", inference(self.upload), methods=["POST"]),
                Route(f"{prefix}/files", inference(self.list_files)),
                Route(f"{prefix}/files/{{id}}", inference(self.delete_file), methods=["DELETE"]),
                Route(f"{prefix}/files/{{id}}", inference(self.file)),
                Route(f"{prefix}/files/{{id}}/content", inference(self.content)),
                Route(f"{prefix}/batches", inference(self.create), methods=["POST"]),
                Route(f"{prefix}/batches", inference(self.list_batches)),
                Route(f"{prefix}/batches/{{id}}", inference(self.batch)),
                Route(f"{prefix}/batches/{{id}}/cancel", inference(self.cancel), methods=["POST"]),
            )
        ]

    async def upload(self, request: Request, tenant: Tenant) -> Response:
        async with self._files.upload() as upload:
            form = await receive_form(request, upload.write, MAX_BYTES, self._uploads)
            if form.filename is None:
                raise BadRequest("The form has no part called file.", param="file")
            if form.fields.get("purpose") not in PURPOSES:
                raise BadRequest(f"purpose must be {' or '.join(PURPOSES)}.", param="purpose")
            expires_s = asked_expiry(form.fields)
            file = await self._files.keep(upload, tenant, form.filename or "upload", form.fields["purpose"], expires_s)
        return json_response(shown_file(file))

    async def list_files(self, request: Request, tenant: Tenant) -> Response:
        page = asked_page(request, 10_000, 10_000)
        found = await self._files.page(tenant.viewer, page)
        return json_response(shown_list([shown_file(file) for file in found], page.limit))

    async def file(self, request: Request, tenant: Tenant) -> Response:
        return json_response(shown_file(await self._files.get(tenant.viewer, request.path_params["id"])))

    async def content(self, request: Request, tenant: Tenant) -> Response:
        file = await self._files.get(tenant.viewer, request.path_params["id"])
        path = self._files.path(file.id)
        if not await asyncio.to_thread(path.is_file):
            raise NotFound(f"The bytes of {file.id} are not on this host.", param="file_id")
        return FileResponse(path, media_type="application/jsonl")

    async def delete_file(self, request: Request, tenant: Tenant) -> Response:
        file_id = request.path_params["id"]
        await self._files.delete(tenant.viewer, file_id)
        return json_response({"id": file_id, "object": "file", "deleted": True})

    async def create(self, request: Request, tenant: Tenant) -> Response:
        asked = await read_object(request, REQUEST_BYTES)
        fingerprint = blake2b(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
        once = asked_once(request, tenant, fingerprint)
        return json_response(shown_batch(await self._jobs.create(tenant, asked, common_headers(request, tenant), once)))

    async def list_batches(self, request: Request, tenant: Tenant) -> Response:
        refuse(request.query_params, "purpose")  # only files have a purpose
        page = asked_page(request, 20, 100)
        found = await self._jobs.page(tenant.viewer, page)
        return json_response(shown_list([shown_batch(batch) for batch in found], page.limit))

    async def batch(self, request: Request, tenant: Tenant) -> Response:
        return json_response(shown_batch(await self._jobs.get(tenant.viewer, request.path_params["id"])))

    async def cancel(self, request: Request, tenant: Tenant) -> Response:
        return json_response(shown_batch(await self._jobs.cancel(tenant.viewer, request.path_params["id"])))
