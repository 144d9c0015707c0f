"""Reduces JSON schemas to the keywords that Anthropic's structured outputs accept. The other keywords are moved to
descriptions."""

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
"""Names of keywords that Anthropic does not accept in a schema. Unknown keywords are accepted."""
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_NAMED, _LISTED = ("properties", "$defs", "definitions"), ("anyOf", "allOf", "oneOf")


def enforceable(schema: Any) -> Any:
    """`schema` without the keywords that Anthropic does not accept, which are added to the description. A missing
    `additionalProperties` becomes false, except in objects without properties."""
    if type(schema) is not dict:
        return schema
    reduced = {name: _inside(name, value) for name, value in schema.items() if not _advice(name, value)}
    if advice := {name: value for name, value in schema.items() if _advice(name, value) and value is not False}:
        field = schema.get("description")
        words = orjson.dumps(advice).decode()
        reduced["description"] = f"{field}\n\n{words}" if type(field) is str and field else words
    if "oneOf" in reduced:
        reduced["anyOf"] = [*reduced.get("anyOf", ()), *reduced.pop("oneOf")]
    if reduced.get("properties") and "additionalProperties" not in reduced:
        reduced["additionalProperties"] = False
    return reduced


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
