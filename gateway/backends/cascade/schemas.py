"""Validates an answer against the JSON schema in the request, without network access."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

import orjson
from pydantic_core import from_json

from gateway.domain.request import CompletionRequest

log = logging.getLogger(__name__)

Check = Callable[[Any], bool]

_MOST_BYTES = 64 * 2**10
"""Maximum bytes of a schema. Answers are not checked against a larger schema."""


class Expected:
    """The JSON that a request expects: schemas of the answer and of the tools' arguments. Unreadable schemas accept any
    value."""

    __slots__ = ("json", "schema", "tools")

    def __init__(self, request: CompletionRequest) -> None:
        kind, self.schema = _format(request.body)
        self.json = kind != ""
        """Whether the request asks for JSON."""
        self.tools = _tools(request.body)
        """Tool name → schema of the tool's arguments. Empty if no tool is known."""

    def content(self, text: str) -> bool:
        """Whether `text` is JSON as the request expects it. True if the request does not ask for JSON."""
        if not self.json:
            return True
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError:
            return False
        return type(found) is dict if self.schema is None else _check(self.schema)(found)

    def beginning(self, text: str) -> bool:
        """Whether `text` can be the beginning of the JSON that the request expects. True if the request does not ask
        for JSON."""
        if not self.json or not text.strip():
            return True
        try:
            from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return False
        return True

    def call(self, name: object, arguments: object) -> bool:
        """Whether `name` is a known tool and `arguments`, a JSON text, are valid for this tool. True if no tool is
        known."""
        if not self.tools:
            return True
        if type(name) is not str or name not in self.tools:
            return False
        try:
            value = orjson.loads(arguments if type(arguments) is str and arguments else "{}")
        except orjson.JSONDecodeError:
            return False
        schema = self.tools[name]
        return schema is None or _check(schema)(value)


def _format(body: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """The JSON that the request expects, as (JSON type, schema). The type is empty if the request does not ask for
    JSON. `body` may be in any dialect."""
    text, config = body.get("text"), body.get("output_config")
    for value in (
        body.get("response_format"),
        text.get("format") if type(text) is dict else None,
        config.get("format") if type(config) is dict else None,
        body.get("output_format"),
    ):
        if type(value) is dict and value.get("type") in ("json_object", "json_schema"):
            nested = value.get("json_schema")
            return value["type"], _schema((nested if type(nested) is dict else value).get("schema"))
    return "", None


def _tools(body: Mapping[str, Any]) -> dict[str, bytes | None]:
    """Tool name → schema of the tool's arguments. Empty if a tool of the request is not a function tool."""
    found: dict[str, bytes | None] = {}
    tools = body.get("tools")
    for tool in tools if type(tools) is list else ():
        inner = tool.get("function", tool) if type(tool) is dict else None
        if type(inner) is not dict or type(inner.get("name")) is not str:
            return {}
        found[inner["name"]] = _schema(inner.get("parameters", inner.get("input_schema")))
    return found


def _schema(value: object) -> bytes | None:
    """The schema as JSON bytes with sorted keys. The bytes are the key of the compiled schema in a cache. None if the
    schema is missing, invalid or too large."""
    if type(value) is not dict:
        return None
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None
    return written if len(written) <= _MOST_BYTES else None


@lru_cache(maxsize=256)
def _check(schema: bytes) -> Check:
    """Compile a client's schema. Compiled schemas are cached.

    Patterns must be matched in linear time, and references to other addresses must not be fetched, because the
    schema may be hostile.
    """
    from jsonschema_rs import RegexOptions, validator_for  # imported here because few requests need it

    try:
        return validator_for(orjson.loads(schema), pattern_options=RegexOptions(), retriever=_nowhere).is_valid
    except Exception as error:  # the library raises various exceptions for unusual schemas
        log.debug("a request's JSON schema cannot be read, so its answers are not checked: %s", error)
        return lambda _: True


def _nowhere(address: str) -> NoReturn:
    raise ValueError(f"{address} is outside the schema")
