"""Builds the OpenAPI 3.1 document from the routes that are served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from gateway.api.openapi.components import REQUEST_HEADERS, RESPONSE_HEADERS, SCHEMAS, SECURITY_SCHEMES
from gateway.api.openapi.operation import JSON, PARAMETER, Operation, Schema, ref, template
from gateway.api.openapi.operations import INFERENCE, OPERATIONS

VERSION = "3.1.0"
_TAGS = (
    ("/admin", "administration"),
    ("/dashboard", "dashboard"),
    ("/health", "health"),
    ("/metrics", "health"),
    ("/v1/files", "batches"),
    ("/v1/batches", "batches"),
    ("/v1/messages/batches", "batches"),
    ("/v1/requests", "records"),
    ("/v1/usage", "records"),
    ("/openapi.json", "health"),
    ("/", "inference"),
)
"""(Prefix of a path, tag). The first matching prefix decides the tag."""


def document(routes: Iterable[tuple[str, str]], version: str) -> dict[str, Any]:
    """The OpenAPI document. `routes`: (method, path) of all routes except inference. Routes that have no operation
    are aliases and are left out.
    """
    paths: dict[str, dict[str, Any]] = {path: {"post": _operation(path, each)} for path, each in INFERENCE.items()}
    for method, path in routes:
        shown = template(path)
        operation = OPERATIONS.get((method, shown))
        if operation is not None:
            paths.setdefault(shown, {})[method.lower()] = _operation(shown, operation)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Thriftgate",
            "version": version,
            "summary": "An LLM gateway that sends each request to the cheapest backend that is good enough for it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name} for name in dict.fromkeys(tag for _, tag in _TAGS)],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": SECURITY_SCHEMES,
            "parameters": {name: _header(name, *facts) for name, facts in REQUEST_HEADERS.items()},
            "headers": {
                name: {"description": description, "schema": schema}
                for name, (description, schema) in RESPONSE_HEADERS.items()
            },
            "responses": {"Error": {"description": "An error.", "content": {JSON: {"schema": ref("Error")}}}},
        },
    }


def _operation(path: str, operation: Operation) -> dict[str, Any]:
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in PARAMETER.findall(path)
    ]
    parameters += operation.query
    if operation.controls:
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in REQUEST_HEADERS]
    headers = (
        {name: {"$ref": f"#/components/headers/{name}"} for name in RESPONSE_HEADERS} if operation.controls else {}
    )
    written: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": ["health" if path == "/" else next(tag for prefix, tag in _TAGS if path.startswith(prefix))],
        "parameters": parameters,
        "responses": _responses(operation, headers),
        "security": [{name: []} for name in SECURITY_SCHEMES] if operation.scopes else [],
    }
    if operation.scopes:
        written["description"] = f"Scope of the key: {' or '.join(operation.scopes)}."
    if operation.body is not None:
        written["requestBody"] = {"required": True, "content": _content(operation.body)}
    return written


def _responses(operation: Operation, headers: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": _content(content),
            **({"headers": headers} if headers else {}),
        }
        for status, content in operation.answers.items()
    }
    for status in operation.errors:
        found.setdefault(str(status), {"$ref": "#/components/responses/Error"})
    return found


def _content(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}


def _header(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}
