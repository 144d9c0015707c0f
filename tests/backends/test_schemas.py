from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.cascade.schemas import Expected
from tests.support.requests import chat_request

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def expected(**fields: Any) -> Expected:
    return Expected(chat_request(**fields))


def formatted(schema: Any) -> Expected:
    return expected(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def test_content_is_checked_against_the_schema_that_was_asked_for() -> None:
    said = formatted(SCHEMA)
    assert said.content('{"n": 3}')
    for wrong in ('{"n": "3"}', '{"n": 3, "m": 1}', "{}", "[]", "three", '```json\n{"n": 3}\n```', '{"n": 3'):
        assert not said.content(wrong), wrong


def test_without_a_schema_any_object_will_do_and_without_a_format_anything() -> None:
    said = expected(response_format={"type": "json_object"})
    assert said.content('{"whatever": 1}')
    assert not said.content("1")
    assert expected().content("anything")
    assert expected(response_format={"type": "text"}).content("anything")


def test_a_beginning_is_broken_when_nothing_can_mend_it() -> None:
    said = formatted(SCHEMA)
    for whole in ("", " ", "{", '{"n', '{"n":', '{"n": 3', '{"a": "b\\', "[1, {"):
        assert said.beginning(whole), whole
    for broken in ("Sure! Here", '{"n" 3', '{"n":: ', "```json"):
        assert not said.beginning(broken), broken
    assert expected().beginning("Sure! Here")


def test_arguments_are_checked_against_the_tools_schema() -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
    said = expected(tools=[tool])
    assert said.call("add", '{"n": 1}')
    assert not said.call("add", '{"n": "1"}')
    assert not said.call("add", '{"n": ')
    assert not said.call("subtract", '{"n": 1}')
    assert expected(tools=[{"type": "web_search"}]).call("whatever", "{}")
    assert expected(tools=[{"type": "function", "function": {"name": "now"}}]).call("now", "")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/secret.json"},
        {"$ref": "#/nowhere"},
        {"type": "no such type"},
        {"type": "object", "description": "x" * 100_000},
    ],
)
def test_a_schema_that_cannot_be_read_allows_everything_and_fetches_nothing(schema: Any) -> None:
    assert formatted(schema).content('{"n": 1}')


def test_a_costly_pattern_is_matched_in_no_time() -> None:
    said = formatted({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    assert not said.content('{"a": "' + "a" * 5000 + '!"}')
