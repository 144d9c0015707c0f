"""A request whose beginning is known is the request that a parser makes of all its bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.keys import Keys
from gateway.context.measure import estimated
from gateway.dialects import json_splice
from gateway.dialects.clients import CONVERSATIONS
from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.openai_responses.native import ResponsesToResponses
from gateway.dialects.registry import translators
from gateway.dialects.requests.body_facts import scanned
from gateway.dialects.requests.forwarding import _WORDS, check_forwarding
from gateway.dialects.requests.known_bodies import LEAST_BYTES, KnownBodies, longest
from gateway.dialects.requests.spans import any_item
from gateway.domain.body_scan import MODEL, WORDS, BodyScan, has_escaped_letter
from gateway.domain.continued import Notes
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextPlan
from gateway.domain.tenant import Key, Tenant
from gateway.errors import Forbidden, GatewayError

KEYS, TENANT = Keys(""), Tenant(Key("k1", "any"), Policy(team="any"), "e1")
NATIVE = {"openai_chat": ChatToChat(), "openai_responses": ResponsesToResponses()}
OTHERS = ("bedrock_converse", "gemini_generate", "ollama_chat")
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
POLICIES = (
    Policy(team="any"),
    Policy.model_validate({"team": "files", "data": {"forward": ["files"]}}),
    Policy.model_validate({"team": "closed", "data": {"server_tools": "forbidden"}}),
)
LINES = "    total = sum(each.amount for each in ledger)  # «so»\n" * 40
WRITERS: tuple[Callable[[Any], bytes], ...] = (
    orjson.dumps,
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, indent=1, ensure_ascii=False).encode(),
)


def read(
    path: str, raw: bytes, policy: Policy, bodies: KnownBodies | None = None, owner: str = "key"
) -> tuple[CompletionRequest, int]:
    """The request of `raw`, as the inference endpoint reads it, and the number of its items that were known."""
    dialect = CONVERSATIONS[path]
    known = None
    if bodies is not None:
        alike = bodies.alike(owner, dialect.CONVERSATION, raw)
        bodies.locate(alike)
        known = longest(alike, raw)
    continued = known.parsed(raw) if known is not None else None
    request = dialect.parse(raw, "r", Controls(), {}, continued)
    fields, notes = request.body, continued.notes if continued else Notes()
    request.scan, request.notes = continued.scan if continued else scanned(raw), notes
    check_forwarding(request, policy)
    if bodies is not None:
        name, turns, scan = dialect.CONVERSATION, request.turns, request.scan
        bodies.keep(owner, name, raw, fields, turns, notes, scan, known if continued else None)
    return request, continued.shared if continued else 0


def result(path: str, raw: bytes, policy: Policy, bodies: KnownBodies | None = None) -> Any:
    """Everything that a reader of the request can see; for a refused request, the error."""
    try:
        request, _ = read(path, raw, policy, bodies)
    except GatewayError as error:
        return type(error), error.message, error.param
    tokens = estimated(request), request.asides
    sent = [
        native.body(request, "m", ContextPlan(0, 0, drop=frozenset(drop), replace={turn.index: "(left out)"}))
        for drop in ((), (2, 3))
        if (turn := next((each for each in request.turns if each.role == "tool" and each.index > 3), None))
        and (native := NATIVE.get(request.dialect))
    ]
    digest = KEYS.digest(request, TENANT)
    seen = replace(request, notes=None, continued=None)
    assert digest == KEYS.digest(seen, TENANT)
    return seen, list(seen.body), orjson.dumps(seen.body), seen.known_scan, digest, tokens, sent


def plain_scan(raw: bytes) -> BodyScan:
    """The facts of a scan, found in the simplest way."""
    words = frozenset(word for word in WORDS if word in raw)
    items = raw.count(b"{") + raw.count(b"[")
    return BodyScan(raw, items, raw.count(b":"), raw.count(b","), words, has_escaped_letter(raw), raw.count(MODEL))


def turn(path: str, number: int, text: str) -> list[dict[str, Any]]:
    """A tool call and its result, in the dialect of `path`."""
    call, arguments = f"c{number}", {"path": f"/src/{number}.py", "messages": [], "input": [number]}
    if path == "/v1/messages":
        block = {"type": "tool_use", "id": call, "name": "read", "input": arguments}
        shown = {"type": "tool_result", "tool_use_id": call, "content": text}
        return [{"role": "assistant", "content": [block]}, {"role": "user", "content": [shown]}]
    written = orjson.dumps(arguments).decode()
    if path == "/v1/responses":
        thought = {"type": "reasoning", "id": f"rs{number}", "summary": [], "encrypted_content": "x" * 40}
        asked = {"type": "function_call", "call_id": call, "name": "read", "arguments": written}
        if number % 3 == 0:
            asked = {"type": "custom_tool_call", "call_id": call, "name": "patch", "input": text[:80]}
        return [thought, asked, {"type": "function_call_output", "call_id": call, "output": text}]
    asked = {"id": call, "type": "function", "function": {"name": "read", "arguments": written}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": call, "content": text},
    ]


def body(path: str, items: list[Any], *, first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    tool = {"name": "read", "input_schema": {"type": "object", "properties": {"input": {"type": "string"}}}}
    kind = {} if path == "/v1/messages" else {"type": "function", "function": {"name": "read"}}
    tools = [{**kind, **tool}]
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    return {**first, CONVERSATIONS[path].CONVERSATION: items, "tools": tools, limit: 100, **last}


STRANGE = (
    *("file_id", 'a "model" \\u0066', "\u2028 \U0001f600 é", '{"messages":[', "]}", "", '"container'),
    '\\"input\\":[{"type":"message"}],',
)
EDITS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 99), st.sampled_from(STRANGE)),
    st.tuples(st.just("edit"), st.integers(0, 99), st.sampled_from(STRANGE)),
    st.tuples(st.just("drop"), st.integers(0, 99), st.just("")),
    st.tuples(st.just("cut"), st.integers(1, 5), st.just("")),
    st.tuples(st.just("item"), st.integers(0, 99), st.sampled_from(("file", "twice", "number", "odd", "thought"))),
    st.tuples(st.just("field"), st.integers(0, 3), st.sampled_from(STRANGE)),
    st.tuples(st.just("bytes"), st.integers(-90, -1), st.sampled_from(("", "]", ",", "}", '"', "\x00"))),
)
ITEMS: dict[str, Any] = {
    "file": {"type": "message", "role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}]},
    "twice": {"type": "message", "role": "user", "content": "TWICE"},
    "number": 12,
    "odd": {"role": 7},
    "thought": {"type": "reasoning", "role": "user", "content": [{"type": "text", "text": "so"}]},
}


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(PATHS),
    st.sampled_from(POLICIES),
    st.sampled_from(WRITERS),
    st.lists(EDITS, min_size=2, max_size=7),
)
def test_what_is_known_of_a_body_never_changes_the_request(
    path: str, policy: Policy, write: Callable[[Any], bytes], edits: list[tuple[str, int, str]]
) -> None:
    bodies = KnownBodies()
    items = [{"type": "message", "role": "user", "content": "Mend it."}]
    for number in range(40):
        items += turn(path, number, LINES[: 300 + 40 * number])
    first: dict[str, Any] = {"model": "m"}
    last: dict[str, Any] = {}
    for step, (edit, place, text) in enumerate(edits, 100):
        if edit == "append":
            items = [*items, *turn(path, step, f"{text} {LINES}")]
        elif edit == "edit":
            at = place % len(items)
            items = [*items[:at], {"type": "message", "role": "user", "content": f"other {text}"}, *items[at + 1 :]]
        elif edit == "drop":
            del (items := [*items])[place % len(items)]
        elif edit == "cut":
            items = items[:-place]
        elif edit == "item":
            items = [*items, ITEMS[text]]
        elif edit == "field":
            (first if place % 2 else last)[("user", "metadata")[place // 2]] = text if place < 2 else {"user_id": text}
        raw = write(body(path, items, first=first, last=last)).replace(b'"TWICE"', b'"one","content":"two"')
        if edit == "bytes":
            raw = raw[:place] + text.encode() + raw[place + 1 :]
        found = result(path, raw, policy, bodies)
        assert found == result(path, raw, policy)
        if len(found) == 7 and found[3] is not None:
            assert found[3] == plain_scan(raw)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("write", WRITERS)
def test_a_session_is_parsed_from_its_first_new_item(path: str, write: Callable[[Any], bytes]) -> None:
    bodies, items, policy = KnownBodies(), turn(path, 0, LINES) * 30, POLICIES[0]
    shared = []
    for number in range(1, 5):
        raw = write(body(path, items, first={"model": "m"}, last={"user": f"u{number}"}))
        shared.append((read(path, raw, policy, bodies)[1], len(items)))
        items = [*items, *turn(path, number, LINES)]
    step = len(turn(path, 0, ""))
    assert shared == [(0, 30 * step), *((number * step, (number + 1) * step) for number in (30, 31, 32))]
    assert len(bodies) == 1


def test_the_asides_of_known_items_are_not_counted_again() -> None:
    bodies, path, (first, rest) = KnownBodies(), "/v1/responses", (LINES, LINES[:300])
    items = [part for number in range(30) for part in turn(path, number, first)]
    before, _ = read(path, orjson.dumps(body(path, items, first={}, last={"model": "m"})), POLICIES[0], bodies)
    estimated(before)
    more = orjson.dumps(body(path, [*items, *turn(path, 30, rest)], first={}, last={"model": "m"}))
    after, known = read(path, more, POLICIES[0], bodies)
    for item in before.body["input"][:-1]:
        item["encrypted_content"] = ["later words"]  # in the parsed items, which both requests share
    estimated(after)
    assert known == len(items)
    assert before.asides is not None
    assert after.asides is not None
    assert after.asides.items() > before.asides.items()


def session(turns: int, mark: str = "") -> bytes:
    items = [item for number in range(turns) for item in turn(PATHS[0], number, mark + LINES)]
    return orjson.dumps(body(PATHS[0], items, first={"model": "m"}, last={}))


def test_a_changed_early_byte_makes_the_whole_body_new() -> None:
    raw = session(30)
    for after, known in ((0, range(1)), (len(raw) // 2, range(28, 32))):
        bodies = KnownBodies()
        read(PATHS[0], raw, POLICIES[0], bodies)
        at = raw.index(b"total", after)
        changed = raw[:at] + b"T" + raw[at + 1 :]
        request, shared = read(PATHS[0], changed, POLICIES[0], bodies)
        assert shared in known
        assert sum("Total" in turn.text for turn in request.turns) == 1
        assert read(PATHS[0], raw.replace(b'"m"', b'"n"', 1), POLICIES[0], bodies)[1] == 0


def test_sessions_of_a_key_that_begin_alike_are_found_beside_many_others() -> None:
    bodies, raws = KnownBodies(), [session(15, f"task {number}") for number in range(40)]
    for raw in raws:
        read(PATHS[0], raw, POLICIES[0], bodies)
    for raw in raws:
        assert len(bodies.alike("key", "messages", raw)) <= 1
    assert [read(PATHS[0], raw, POLICIES[0], bodies)[1] for raw in raws[-10:]] == [30] * 10


@pytest.mark.parametrize("more", [{"server_url": "https://other"}, {"environment": {"container_id": "c1"}}])
def test_a_reference_that_a_later_request_adds_to_its_tools_is_refused(more: dict[str, Any]) -> None:
    bodies, path = KnownBodies(), PATHS[2]
    tools: list[dict[str, Any]] = [{"type": "function", "name": "read", "parameters": {}}]

    def raw(turns: int, tools: list[dict[str, Any]]) -> bytes:
        items = [item for number in range(turns) for item in turn(path, number, LINES)]
        return orjson.dumps({"model": "m", "store": False, "input": items, "tools": tools})

    for number in (30, 31, 32):
        request, _ = read(path, raw(number, tools), POLICIES[0], bodies)
        assert request.notes is not None
        assert request.notes.no_references
    with pytest.raises(Forbidden):
        read(path, raw(33, [{**tools[0], **more}]), POLICIES[0], bodies)
    assert read(path, raw(33, tools), POLICIES[0], bodies)[1] == 96


@pytest.mark.parametrize(
    "item",
    [
        *(b'{"type":"thing","%b":"x1"}' % name.encode() for name in sorted(_WORDS)),
        b'{"type":"mcp"}',
        b'{"type":"image_generation_call","id":"ig1"}',
        b'{"type":"thing","parts":[{"container" : {"id":"c1"}}]}',
        rb'{"type":"thing","f\u0069le_id":"f1"}',
        rb'{"type":"thing","cached\u0043ontent":"f1"}',
        rb'{"type":"\u006dcp"}',
    ],
)
def test_a_reference_in_a_new_item_is_refused(item: bytes) -> None:
    bodies, path = KnownBodies(), PATHS[2]
    for number in (30, 31, 32):
        items = [item for number in range(number) for item in turn(path, number, LINES)]
        raw = orjson.dumps({"model": "m", "store": False, "input": [*items, "LAST"]})
        request, _ = read(path, raw.replace(b'"LAST"', b'{"role":"user","content":"\\u0061"}'), POLICIES[0], bodies)
        assert request.notes is not None
        assert request.notes.no_references
    with pytest.raises(Forbidden):
        read(path, raw.replace(b'"LAST"', item), POLICIES[0], bodies)


def test_known_items_are_tested_only_once() -> None:
    bodies, path, tested = KnownBodies(), PATHS[2], list[Any]()

    def is_thing(item: dict[str, Any]) -> bool:
        tested.append(item)
        return item["type"] == "thing"

    items = [item for number in range(30) for item in turn(path, number, LINES)]
    for number in (30, 31):
        items += turn(path, number, LINES)
        request, _ = read(path, orjson.dumps({"model": "m", "input": items}), POLICIES[0], bodies)
        assert not any_item(request, is_thing)
        assert not any_item(request, is_thing)
        assert len(tested) == len(items)
    request.raw, request.body = b"{}", {"input": [{"type": "thing"}, *items]}  # as if stored items were inserted
    assert any_item(request, is_thing)
    raw = orjson.dumps({"model": "m", "input": [*items, {"type": "thing"}]})
    request, shared = read(path, raw, POLICIES[0], bodies)
    assert shared == len(items)
    assert any_item(request, is_thing)


def test_each_key_has_its_own_bodies() -> None:
    bodies = KnownBodies()
    read(PATHS[0], session(30), POLICIES[0], bodies, "one")
    assert read(PATHS[0], session(31), POLICIES[0], bodies, "two")[1] == 0
    assert read(PATHS[0], session(31), POLICIES[0], bodies, "one")[1] == 60


def test_sessions_in_turn_are_continued_although_not_all_of_their_first_bodies_fit() -> None:
    bodies = KnownBodies(60 * len(session(15)))
    shared = [
        read(PATHS[0], session(15 + turn, f"task {number}"), POLICIES[0], bodies)[1]
        for turn in range(6)
        for number in range(14)
    ]
    assert len(bodies) < 14
    assert any(shared)


def test_single_bodies_are_evicted_before_continued_ones() -> None:
    bodies = KnownBodies(most_bytes=6 * 2**20)
    read(PATHS[0], session(30), POLICIES[0], bodies)
    read(PATHS[0], session(31), POLICIES[0], bodies)
    for number in range(20):
        read(PATHS[0], session(31, f"{number} "), POLICIES[0], bodies, f"key {number}")
    assert 3 < len(bodies) < 20
    assert read(PATHS[0], session(32), POLICIES[0], bodies)[1] == 62


def test_sessions_with_one_beginning_are_remembered_side_by_side() -> None:
    bodies = KnownBodies()
    for mark in "ab":
        raw = session(4)[:-1]
        items = [
            *orjson.loads(session(4))["messages"],
            *(i for n in range(30) for i in turn(PATHS[0], n, mark + LINES)),
        ]
        for more in ([], turn(PATHS[0], 99, LINES)):
            raw = orjson.dumps(body(PATHS[0], [*items, *more], first={"model": "m"}, last={}))
            _, shared = read(PATHS[0], raw, POLICIES[0], bodies)
        assert shared == 68
    assert len(bodies) == 2


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_scan_is_not_used_for_other_bytes(word: bytes) -> None:
    raw = session(30)
    request = CompletionRequest("r", "openai_chat", raw, {}, "m", [], False, None, None, frozenset())
    request.scan = scanned(raw)
    assert not request.contains(word)
    request.raw = raw + word
    assert request.contains(word)
    assert request.known_scan is None


@pytest.mark.parametrize(
    ("more", "fast"),
    [
        ({}, True),
        ({"content": 'the word "model" in a text'}, True),
        ({"metadata": {"model": "x"}}, False),
        ({"kind": "model"}, False),
    ],
)
def test_the_model_is_replaced_where_it_stands_or_wherever_the_scan_cannot_tell(
    more: dict[str, object], fast: bool
) -> None:
    value = {**orjson.loads(session(30)), **more}
    for raw in (orjson.dumps(value), orjson.dumps(value).replace(b'"model":', b'"model" : ', 1)):
        scan = scanned(raw)
        assert (scan.models == 1) is fast
        changes = {"model": b'"another"'}
        expected = json_splice.splice(raw, value, changes)
        assert json_splice.splice(raw, value, changes, scan) == expected
        assert orjson.loads(expected)["model"] == "another"


def test_an_escaped_key_is_not_taken_for_another() -> None:
    raw = session(30).replace(b'"model":"m"', b'"\\u006dodel":"m","kind":"model"')
    value, scan = orjson.loads(raw), scanned(raw)
    assert orjson.loads(json_splice.splice(raw, value, {"model": b'"another"'}, scan)) == {**value, "model": "another"}


def test_a_second_conversation_is_not_taken_for_the_first() -> None:
    bodies, policy = KnownBodies(), POLICIES[0]
    read(PATHS[0], session(30), policy, bodies)
    for again in (b'"messages":[{"role":"user","content":"x"}]', b'"\\u006dessages":[{"role":"user","content":"x"}]'):
        raw = session(31)[:-1] + b"," + again + b"}"
        assert result(PATHS[0], raw, policy, bodies) == result(PATHS[0], raw, policy)


def test_fields_between_the_conversation_and_the_known_rest_are_kept() -> None:
    bodies, policy = KnownBodies(), POLICIES[0]
    for number in (30, 31, 32):
        read(PATHS[0], session(number), policy, bodies)
    raw = session(33).replace(b'],"tools":', b'],"stop":["x"],"tools":', 1)
    found = result(PATHS[0], raw, policy, bodies)
    assert found == result(PATHS[0], raw, policy)
    assert found[0].body["stop"] == ["x"]


def test_a_body_that_is_cut_after_a_known_item_is_refused_as_an_unknown_one_is() -> None:
    bodies, raw = KnownBodies(), session(30)
    for number in (29, 30):
        request, _ = read(PATHS[0], session(number), POLICIES[0], bodies)
    assert request.notes is not None
    assert len(request.notes.ends) == 60
    for end in request.notes.ends[-4:]:
        for cut in (raw[:end], raw[:end] + b" ", raw[:end] + b",", raw[:end] + b"]"):
            assert result(PATHS[0], cut, POLICIES[0], bodies) == result(PATHS[0], cut, POLICIES[0])


def test_small_bodies_are_not_remembered() -> None:
    bodies, raw = KnownBodies(), session(1)
    assert len(raw) < LEAST_BYTES
    read(PATHS[0], raw, POLICIES[0], bodies)
    assert len(bodies) == 0


@pytest.mark.parametrize("backend", ["openai_chat", "anthropic_messages", "openai_responses", *OTHERS])
@pytest.mark.parametrize("path", PATHS)
def test_no_translator_changes_the_items_that_later_requests_share(path: str, backend: str) -> None:
    items = [item for number in range(6) for item in turn(path, number, LINES)]
    raw = orjson.dumps(body(path, items, first={"model": "m"}, last={}))
    request, _ = read(path, raw, POLICIES[0])
    turns, index = repr(request.turns), request.turns[3].index
    (translator, *_) = translators(request.dialect, (backend,), strict=True)
    for plan in (None, ContextPlan(9, 9, drop=frozenset((1, 2))), ContextPlan(9, 9, replace={index: "(left out)"})):
        translator.body(request, "another", plan, max_output_tokens=50)
        assert orjson.dumps(request.body) == raw
        assert repr(request.turns) == turns
