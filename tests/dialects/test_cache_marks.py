"""Marks for Anthropic's prompt cache in bodies of every client dialect."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from gateway.dialects.anthropic_messages.cache_marks import with_marks
from gateway.dialects.anthropic_messages.native import MessagesToMessages
from gateway.dialects.clients import DIALECTS
from gateway.dialects.registry import wire
from gateway.domain.prompt_cache import CacheMarks
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.domain.routing.route import ContextPlan

SHORT, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a", "big": 1.5}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}, {"name": "write", "input_schema": {"type": "object"}}]


def messages() -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "look at a"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, CALL]},
        {"role": "user", "content": [RESULT]},
    ]


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "system": "be brief", "tools": TOOLS, "messages": messages(), **more}


def parsed(dialect: DialectName, sent: dict[str, Any] | bytes) -> CompletionRequest:
    raw = sent if isinstance(sent, bytes) else orjson.dumps(sent)
    return DIALECTS[dialect].parse(raw, "req_1", Controls(), {})


def written(dialect: DialectName, sent: dict[str, Any] | bytes, marks: CacheMarks) -> dict[str, Any]:
    out = wire(dialect, "anthropic_messages").body(parsed(dialect, sent), "m", ContextPlan(1, 1, marks=marks))
    found: dict[str, Any] = orjson.loads(out)
    return found


def marked(sent: dict[str, Any]) -> list[tuple[str, str]]:
    """Every mark in order: what carries it, and its lifetime."""
    found = []
    blocks = [*(sent.get("tools") or []), *(sent["system"] if type(sent.get("system")) is list else [])]
    blocks += [
        block for message in sent["messages"] if type(message["content"]) is list for block in message["content"]
    ]
    for block in blocks:
        if "cache_control" in block:
            name = block.get("type", block.get("name"))
            found.append((f"{name}:{block.get('text', '')}".rstrip(":"), block["cache_control"].get("ttl", "5m")))
    return found


def test_the_ends_of_tools_system_prompt_and_conversation_are_marked() -> None:
    found = written("anthropic_messages", body(), CacheMarks("5m", fixed=True))
    assert marked(found) == [("write", "5m"), ("text:be brief", "5m"), ("tool_result", "5m")]
    assert found["system"] == [{"type": "text", "text": "be brief", "cache_control": SHORT}]


def test_what_stood_earlier_in_the_conversation_is_marked_by_the_number_of_blocks() -> None:
    marks = CacheMarks("5m", ((1, "5m"),), fixed=True)
    found = written("anthropic_messages", body(), marks)
    assert marked(found) == [("write", "5m"), ("text:be brief", "5m"), ("text:look at a", "5m"), ("tool_result", "5m")]
    assert marks.blocks == 3
    assert not marks.lives_long


def test_thinking_is_never_marked_and_what_stands_before_it_is() -> None:
    thought = {"role": "assistant", "content": messages()[1]["content"][:1]}
    sent = body(messages=[messages()[0], thought, {"role": "user", "content": "go on"}])
    found = written("anthropic_messages", sent, CacheMarks("5m", ((1, "5m"),)))
    assert marked(found) == [("text:look at a", "5m"), ("text:go on", "5m")]
    assert found["messages"][1] == thought


def test_places_of_marks_are_the_same_with_and_without_thinking() -> None:
    for drops in (frozenset[int](), frozenset({1})):
        marks = CacheMarks("5m", ((2, "5m"),))
        plan = ContextPlan(1, 1, marks=marks, no_thinking=drops)
        out = wire("anthropic_messages", "anthropic_messages").body(parsed("anthropic_messages", body()), "m", plan)
        assert marked(orjson.loads(out)) == [("tool_use", "5m"), ("tool_result", "5m")]
        assert marks.blocks == 3
        assert (b'"thinking"' in out) is not bool(drops)


def test_without_tools_and_system_prompt_the_end_of_the_first_message_is_marked() -> None:
    sent = {"model": "m", "max_tokens": 9, "messages": messages()}
    found = written("anthropic_messages", sent, CacheMarks("5m", fixed=True))
    assert marked(found) == [("text:look at a", "5m"), ("tool_result", "5m")]


def test_marks_before_an_hours_mark_live_an_hour_too() -> None:
    marks = CacheMarks("1h", ((1, "1h"),), fixed=True)
    assert {lifetime for _, lifetime in marked(written("anthropic_messages", body(), marks))} == {"1h"}
    assert marks.lives_long
    marks = CacheMarks("5m", ((1, "1h"),), fixed=True)
    assert [lifetime for _, lifetime in marked(written("anthropic_messages", body(), marks))] == [
        "1h",
        "1h",
        "1h",
        "5m",
    ]
    assert not marks.lives_long


def test_more_than_four_marks_are_never_sent_and_the_tools_give_theirs_up_first() -> None:
    sent = body(messages=[*messages(), {"role": "user", "content": "go on"}])
    found = written("anthropic_messages", sent, CacheMarks("5m", ((1, "5m"), (3, "5m")), fixed=True))
    assert [name for name, _ in marked(found)] == [
        "text:be brief", "text:look at a", "tool_result", "text:go on"
    ]  # fmt: skip


def test_the_clients_marks_keep_their_places_and_lifetimes() -> None:
    system = [{"type": "text", "text": "one", "cache_control": SHORT}, {"type": "text", "text": "two"}]
    first = {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": {**SHORT, "ttl": "5m"}}]}
    sent = body(system=system, messages=[first, *messages()[1:]])
    marks = CacheMarks("1h", ((1, "1h"),), fixed=True)
    found = written("anthropic_messages", sent, marks)
    assert marked(found) == [("text:one", "5m"), ("text:two", "5m"), ("text:look", "5m"), ("tool_result", "5m")]
    assert not marks.lives_long


def test_a_clients_mark_without_a_lifetime_gets_an_hour_before_one_that_has_it() -> None:
    sent = body(system=[{"type": "text", "text": "one", "cache_control": SHORT}])
    found = written("anthropic_messages", sent, CacheMarks("1h"))
    assert marked(found) == [("text:one", "1h"), ("tool_result", "1h")]


def test_a_body_whose_marks_are_all_taken_is_sent_as_it_is() -> None:
    content = [{"type": "text", "text": str(at), "cache_control": SHORT} for at in range(4)]
    raw = orjson.dumps(body(messages=[{"role": "user", "content": [*content, {"type": "text", "text": "new"}]}]))
    request = parsed("anthropic_messages", raw)
    plan = ContextPlan(1, 1, marks=CacheMarks("5m", fixed=True))
    assert MessagesToMessages().body(request, "m", plan) == raw


def test_a_users_text_is_a_block_in_every_request_marked_or_not() -> None:
    first = written("anthropic_messages", body(messages=messages()[:1]), CacheMarks("5m"))
    later = written("anthropic_messages", body(), CacheMarks("5m"))
    plain = first["messages"][0]["content"][0]
    assert plain.pop("cache_control") == SHORT
    assert later["messages"][0] == first["messages"][0]


def test_off_removes_every_mark_and_nothing_else() -> None:
    inner = {"type": "text", "text": "in", "cache_control": SHORT}
    result = {**RESULT, "content": [inner], "cache_control": LONG}
    tools = [TOOLS[0], {**TOOLS[1], "cache_control": SHORT}]
    sent = body(tools=tools, messages=[*messages()[:2], {"role": "user", "content": [result]}])
    found = written("anthropic_messages", sent, CacheMarks(remove=True))
    assert b"cache_control" not in orjson.dumps(found)
    assert found["tools"] == TOOLS
    assert found["messages"][0] == messages()[0]
    assert found["messages"][2]["content"] == [{**RESULT, "content": [{"type": "text", "text": "in"}]}]


@pytest.mark.parametrize("spaces", [False, True])
def test_all_other_bytes_stay(spaces: bool) -> None:
    """Also those of a client that writes JSON in its own way: numbers, escapes and spaces."""
    raw = orjson.dumps(body())
    if spaces:
        raw = raw.replace(b'"big":1.5', b'"big": 123456789012345678901234567890.50').replace(b'"hm"', b'"h\\u006d"')
    found = MessagesToMessages().body(parsed("anthropic_messages", raw), "m", ContextPlan(1, 1, marks=CacheMarks("5m")))
    expected = raw.replace(b'"content":"look at a"', b'"content":[{"type":"text","text":"look at a"}]')
    marked_result = b'"content":"text","cache_control":{"type":"ephemeral"}}'
    assert found == expected.replace(b'"content":"text"}', marked_result)


CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "look at a"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "t1", "content": "text"},
]
ITEMS = [
    {"role": "user", "content": "look at a"},
    {"type": "function_call", "call_id": "t1", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "t1", "output": "text"},
]
FUNCTION = {"name": "read", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("dialect", "sent"),
    [
        ("openai_chat", {"model": "m", "messages": CHAT, "tools": [{"type": "function", "function": FUNCTION}]}),
        (
            "openai_responses",
            {"model": "m", "instructions": "be brief", "input": ITEMS, "tools": [{"type": "function", **FUNCTION}]},
        ),
    ],
)
def test_every_client_dialect_is_marked(dialect: DialectName, sent: dict[str, Any]) -> None:
    found = written(dialect, sent, CacheMarks("5m", ((1, "5m"),), fixed=True))
    assert [name for name, _ in marked(found)] == ["read", "text:be brief", "text:look at a", "tool_result"]


def test_a_plan_without_marks_changes_no_translation() -> None:
    request = parsed("openai_chat", {"model": "m", "messages": CHAT})
    translator = wire("openai_chat", "anthropic_messages")
    assert translator.body(request, "m", None) == translator.body(request, "m", ContextPlan(1, 1, marks=None))


def test_ten_thousand_random_histories_stay_valid_and_keep_all_that_they_say() -> None:
    draw = random.Random(17)
    for _ in range(10_000):
        sent = _history(draw)
        fields = with_marks(sent, _marks(draw))
        found = orjson.loads(orjson.dumps({**sent, **fields}))
        if sum("cache_control" in each for each in _all_blocks(sent)) <= 4:
            _check_marks(found)
        assert [_plain(message) for message in found["messages"]] == [_plain(message) for message in sent["messages"]]
        assert [{k: v for k, v in tool.items() if k != "cache_control"} for tool in found["tools"]] == TOOLS


def _history(draw: random.Random) -> dict[str, Any]:
    said: list[dict[str, Any]] = []
    for turn in range(draw.randint(1, 6)):
        text = draw.choice(["hi", " ", "¿qué?", "x" * 50])
        said.append(
            {"role": "user", "content": draw.choice([text, [_maybe_marked(draw, {"type": "text", "text": text})]])}
        )
        calls = [{**CALL, "id": f"t{turn}{at}"} for at in range(draw.randint(0, 3))]
        thinking = [{"type": "thinking", "thinking": "hm", "signature": "s"}] * draw.randint(0, 1)
        if calls:
            said.append({"role": "assistant", "content": [*thinking, *calls]})
            results = [{**RESULT, "tool_use_id": call["id"]} for call in calls]
            said.append({"role": "user", "content": [_maybe_marked(draw, each) for each in results]})
        said.append(
            {"role": "assistant", "content": draw.choice(["yes", [*thinking, {"type": "text", "text": "yes"}]])}
        )
    system = draw.choice(["be brief", [_maybe_marked(draw, {"type": "text", "text": "be brief"})], [], ""])
    return body(messages=said[: draw.randint(1, len(said))], system=system)


def _maybe_marked(draw: random.Random, block: dict[str, Any]) -> dict[str, Any]:
    if block.get("text") == " " or draw.random() > 0.1:
        return block
    return {**block, "cache_control": SHORT}


def _marks(draw: random.Random) -> CacheMarks:
    earlier = tuple((draw.randint(0, 30), draw.choice(("5m", "1h"))) for _ in range(draw.randint(0, 3)))
    return CacheMarks(draw.choice((None, "5m", "1h")), earlier, fixed=draw.random() < 0.5)  # type: ignore[arg-type]


def _all_blocks(sent: dict[str, Any]) -> list[dict[str, Any]]:
    lists = [sent["system"], *(message["content"] for message in sent["messages"])]
    return [*sent["tools"], *(block for each in lists if type(each) is list for block in each)]


def _check_marks(found: dict[str, Any]) -> None:
    blocks = [block for block in _all_blocks(found) if "cache_control" in block]
    lives = [block["cache_control"].get("ttl", "5m") for block in blocks]
    assert len(lives) <= 4
    assert lives == sorted(lives)  # "1h" < "5m": an hour's marks come first
    assert all(block.get("type") not in ("thinking", "redacted_thinking") for block in blocks)
    assert all(block["text"].strip() for block in blocks if block.get("type") == "text")


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if type(content) is str else content
    return {**message, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]}
