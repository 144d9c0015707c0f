"""Reduces JSON schemas to what Anthropic's structured outputs accept; the rest goes into descriptions."""

from __future__ import annotations

from typing import Any

import orjson

_NOT_ENFORCED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "prefixItems"),
        *("minProperties", "maxProperties", "patternProperties", "propertyNames"),
        *("dependentRequired", "dependentSchemas", "unevaluatedProperties", "if", "then", "else", "not"),
    }
)
"""Keywords with which a schema is refused. Those that mean nothing to Anthropic may stay."""
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_NAMED, _LISTED = ("properties", "$defs", "definitions"), ("anyOf", "allOf", "oneOf")


def enforceable(schema: Any) -> Any:
    """`schema` with the same answers allowed as far as can be enforced; the rest becomes advice.

    Objects that leave open what else they may have are closed, as they have to be. One that says that it is open, or
    names no properties, stays as it is: closing it would change what it means, and the refusal says what is wrong.
    """
    if type(schema) is not dict:
        return schema
    said = {name: _inside(name, value) for name, value in schema.items() if not _advice(name, value)}
    if advice := {name: value for name, value in schema.items() if _advice(name, value) and value is not False}:
        given = schema.get("description")
        words = orjson.dumps(advice).decode()
        said["description"] = f"{given}\n\n{words}" if type(given) is str and given else words
    if "oneOf" in said:
        said["anyOf"] = [*said.get("anyOf", ()), *said.pop("oneOf")]
    if said.get("properties") and "additionalProperties" not in said:
        said["additionalProperties"] = False
    return said


def _advice(name: str, value: Any) -> bool:
    if name == "format":
        return type(value) is not str or value not in _FORMATS
    return name in _NOT_ENFORCED or (name == "minItems" and value not in (0, 1))


def _inside(name: str, value: Any) -> Any:
    if name in _NAMED and type(value) is dict:
        return {key: enforceable(inner) for key, inner in value.items()}
    if name in _LISTED and type(value) is list:
        return [enforceable(inner) for inner in value]
    return enforceable(value) if name == "items" else value
