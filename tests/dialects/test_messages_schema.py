"""Schemas that can be enforced."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.translate.chat_to_messages.schema import enforceable

CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, {"type": "string"}),
        (
            {"type": "integer", "minimum": 0, "maximum": 9},
            {"type": "integer", "description": '{"minimum":0,"maximum":9}'},
        ),
        (
            {"type": "string", "description": "A name.", "maxLength": 5, "format": "slug"},
            {"type": "string", "description": 'A name.\n\n{"maxLength":5,"format":"slug"}'},
        ),
        ({"type": "string", "format": "date", "pattern": "^2"}, {"type": "string", "format": "date", "pattern": "^2"}),
        ({"type": "array", "minItems": 1, "uniqueItems": False}, {"type": "array", "minItems": 1}),
        ({"type": "array", "minItems": 2}, {"type": "array", "description": '{"minItems":2}'}),
        (
            {"type": "object", "properties": {"minimum": {"type": "number", "minimum": 1}}},
            {
                "type": "object",
                "properties": {"minimum": {"type": "number", "description": '{"minimum":1}'}},
                **CLOSED,
            },
        ),
        (
            {"anyOf": [{"type": "null"}], "oneOf": [{"type": "object", "properties": {"a": {}}}]},
            {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {}}, **CLOSED}]},
        ),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"b": True}}}},
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"b": True}, **CLOSED}}},
        ),
        (
            {"items": {"type": "string", "minLength": 1}},
            {"items": {"type": "string", "description": '{"minLength":1}'}},
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}},) * 2,
        ({"type": "object"},) * 2,
        ({"enum": [{"minimum": 1}], "default": {"maximum": 2}},) * 2,
    ],
)
def test_what_cannot_be_enforced_becomes_advice(schema: dict[str, Any], said: dict[str, Any]) -> None:
    assert enforceable(schema) == said
    assert enforceable(said) == said
