"""One operation of the OpenAPI document, and short functions for writing the tables of operations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]
"""A JSON Schema, or a reference to one of the components."""

OPEN_OBJECT: Schema = {"type": "object"}
TEXT: Schema = {"type": "string"}
JSON = "application/json"
EVENTS = "text/event-stream"

PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
"""`{name}` and `{name:path}` in a route's path."""

READING = (400, 401, 403, 404, 408, 503)
"""Error statuses of every route that needs a key."""
WRITING = (*READING, 413, 415)
"""Error statuses of every route that has a request body."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: the description of `method path` that `gateway/api/openapi/document.py` writes."""

    id: str
    summary: str
    scopes: tuple[str, ...] = ("inference",)
    """The key needs one of these scopes; empty: no key is needed."""
    answers: Mapping[int, Mapping[str, Schema]] = field(default_factory=lambda: {200: {JSON: OPEN_OBJECT}})
    """Status of an answer → media type → schema."""
    body: Mapping[str, Schema] | None = None
    """Media type → schema."""
    query: tuple[Schema, ...] = ()
    errors: tuple[int, ...] = READING
    controls: bool = False
    """Whether the route accepts the `x-thriftgate-*` request headers and sends the response headers."""


def template(path: str) -> str:
    """A route's path as OpenAPI writes it: `{name:path}` becomes `{name}`."""
    return PARAMETER.sub(r"{\1}", path)


def ref(name: str) -> Schema:
    """A reference to the schema `name` in the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(name: str) -> Schema:
    """The schema of a list of `name` in OpenAI's format."""
    return record(object={"const": "list"}, data={"type": "array", "items": ref(name)})


def record(**properties: Schema) -> Schema:
    """The schema of an object that has at least `properties`."""
    return {"type": "object", "required": sorted(properties), "properties": properties}


def optional(**properties: Schema) -> Schema:
    """The schema of an object that may have `properties` and other fields."""
    return {"type": "object", "properties": properties}


def words(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def whole(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def query(name: str, description: str, schema: Schema, *, required: bool = False) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema, "required": required}
