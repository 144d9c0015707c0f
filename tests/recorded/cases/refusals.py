"""What the gateway itself refuses, in each client's shape: bodies, keys, models, headers, methods and paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.provider_script import Reply
from tests.recorded.case import Case, Server, Spoken, json_body
from tests.recorded.cases.prompts import CLIENT_PATHS, fields

_LISTED = Server("listed", "chat", Reply(text="Hello"), open_to="listed")
"""The only one that the team `listed` may use, so that refusals that name what exists stay short."""
_SPEECH = {"model": "listed", "input": "Hello", "voice": "alloy"}

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    **{client: (path, {"model": "listed", **fields(client, "plain")}) for client, path in CLIENT_PATHS.items()},
    "embeddings": ("/v1/embeddings", {"model": "listed", "input": "Hello"}),
    "speech": ("/v1/audio/speech", _SPEECH),
    "count_tokens": ("/v1/messages/count_tokens", {"model": "listed", "messages": [{"role": "user", "content": "Hi"}]}),
}
"""Client dialect → its path, and a request that would be served but for what is wrong with it."""

_BODIES: dict[str, bytes] = {
    "no body": b"",
    "malformed JSON": b'{"model": "listed", ',
    "an array": b"[]",
    "invalid UTF-8": b'{"model": "listed", "user": "\xff"}',
    "nested too deep": b"[" * 5000,
    "only a model": b'{"model": "listed"}',
    "model is a number": b'{"model": 5}',
}
_BAD_HEADERS = {
    "x-thriftgate-cache": "sometimes",
    "x-thriftgate-cache-tags": "no/spaces in tags",
    "x-thriftgate-tier": "huge",
    "x-thriftgate-deadline": "soon",
    "x-thriftgate-tags": "novalue",
    "x-thriftgate-session": "two words",
    "x-thriftgate-context": "touched",
    "x-thriftgate-priority": "first",
    "idempotency-key": "x" * 300,
}
_BAD_FIELDS: dict[Spoken, dict[str, dict[str, Any]]] = {
    "chat": {
        "messages is a string": {"messages": "hello"},
        "role is unknown": {"messages": [{"role": "wizard", "content": "x"}]},
        "stream is a string": {"stream": "yes"},
        "n is 0": {"n": 0},
        "temperature is a string": {"temperature": "hot"},
        "tools is an object": {"tools": {}},
        "max_tokens is negative": {"max_tokens": -1},
    },
    "responses": {
        "background": {"background": True},
        "conversation": {"conversation": "conv_1"},
        "input is a number": {"input": 5},
        "max_output_tokens is 0": {"max_output_tokens": 0},
        "tools has a number": {"tools": [1]},
    },
    "messages": {
        "no max_tokens": {"max_tokens": None},
        "thinking is a string": {"thinking": "yes"},
        "role is unknown": {"messages": [{"role": "wizard", "content": "x"}]},
        "system is a number": {"system": 5},
    },
    "completions": {
        "prompt is a number": {"prompt": 5},
        "best_of is 0": {"best_of": 0},
        "echo is a string": {"echo": "yes"},
    },
}
_FIELDS: dict[Spoken, tuple[str, ...]] = {
    "chat": (
        *("stream_options", "n", "max_completion_tokens", "functions", "response_format", "logprobs", "top_logprobs"),
        *("reasoning_effort", "parallel_tool_calls", "tool_choice", "stop", "seed", "web_search_options", "thinking"),
    ),
    "responses": (
        *("stream", "stream_options", "store", "parallel_tool_calls", "instructions", "previous_response_id", "top_p"),
        *("temperature", "top_logprobs", "tools", "tool_choice", "text", "reasoning", "include", "metadata", "prompt"),
    ),
    "messages": (
        *("max_tokens", "stream", "temperature", "stop_sequences", "tools", "tool_choice", "output_config"),
        *("output_format", "metadata", "messages"),
    ),
    "completions": ("stream", "stream_options", "n", "n_cmpl", "max_tokens", "temperature", "logprobs", "suffix"),
}
"""Fields that are sent with a value that hardly any of them takes."""
_ODD = -1.5
_FORBIDDEN: dict[str, tuple[Spoken, dict[str, Any]]] = {
    "store": ("responses", {"store": True}),
    "vector stores": ("responses", {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}),
    "a remote server": ("responses", {"tools": [{"type": "mcp", "server_label": "a", "server_url": "https://a.b"}]}),
    "a file": (
        "messages",
        {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]},
    ),
    "a container": ("messages", {"container": "container_1"}),
    "a web search": ("chat", {"web_search_options": {}}),
    "a connector": ("responses", {"tools": [{"type": "mcp", "server_label": "a", "connector_id": "connector_a"}]}),
    "a collection": ("responses", {"tools": [{"type": "file_search", "collection_ids": ["c_1"]}]}),
    "a picture made before": ("responses", {"input": [{"type": "image_generation_call", "id": "ig_1"}]}),
    "a file in a container": (
        "responses",
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}}]},
    ),
    "a remote server of Anthropic's": (
        "messages",
        {"mcp_servers": [{"type": "url", "url": "https://a.b", "name": "a"}]},
    ),
    "a skill": ("messages", {"container": {"skills": [{"type": "custom", "skill_id": "skill_1"}]}}),
}


def cases() -> Iterator[Case]:
    for client, (path, asked) in ASKED.items():
        yield from _requests(client, path, asked)
    for spoken, wrong in _BAD_FIELDS.items():
        path, asked = ASKED[spoken]
        for what, changed in wrong.items():
            yield _case(f"{spoken} oddly asked: {what}", path, json_body(**{**asked, **changed}))
    for spoken, names in _FIELDS.items():
        path, asked = ASKED[spoken]
        for name in names:
            yield _case(f"{spoken} oddly asked: {name} is {_ODD}", path, json_body(**{**asked, name: _ODD}))
    for header, value in _BAD_HEADERS.items():
        path, asked = ASKED["chat"]
        yield _case(f"chat refused: bad {header}", path, json_body(**asked), headers=((header, value),))
    for what, (spoken, added) in _FORBIDDEN.items():
        path, asked = ASKED[spoken]
        yield _case(f"{spoken} that names {what}", path, json_body(**{**asked, **added}))
    yield from _elsewhere()


def _requests(client: str, path: str, asked: dict[str, Any]) -> Iterator[Case]:
    body = json_body(**asked)
    for what, bad in _BODIES.items():
        yield _case(f"{client} refused: {what}", path, bad)
    yield _case(f"{client} refused: wrong key", path, body, team="wrong")
    yield _case(f"{client} refused: no key", path, body, team="")
    yield _case(f"{client} refused: unknown model", path, json_body(**{**asked, "model": "gpt-99"}))
    yield _case(f"{client} refused: body too large", path, json_body(**asked, padding="x" * 70_000))
    yield _case(f"{client} refused: too many items", path, b'{"model": "listed", "items": [%b{}]}' % (b"{}," * 20_500))
    yield _case(f"{client} refused: text/plain", path, body, content_type="text/plain")
    yield _case(f"{client} refused: GET", path, method="GET")


def _elsewhere() -> Iterator[Case]:
    for path in ("/", "/health/live", "/v1", "/v1/nothing", "/v1/messages/nothing", "/v1/responses/resp_1"):
        yield _case(f"GET {path}", path, method="GET")
    yield _case("GET /v1/requests of nobody", "/v1/requests/req_1", method="GET")
    yield _case("POST to a path that only reads", "/v1/models", b"{}")
    path, asked = ASKED["chat"]
    yield _case("chat without /v1", path.removeprefix("/v1"), json_body(**asked))
    basic = (("authorization", "Basic c29tZWJvZHk6c2VjcmV0"),)
    yield _case("chat refused: a password for a key", path, json_body(**asked), team="", headers=basic)
    yield _case("chat with a long body", path, json_body(**asked, padding="x" * 50_000))
    yield _case("chat from a page", path, json_body(**asked), headers=(("origin", "https://app.example"),))
    preflight = (
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    )
    yield _case("chat, preflight of a page", path, method="OPTIONS", headers=preflight, team="")


def _case(name: str, path: str, body: bytes = b"", **more: Any) -> Case:
    return Case(name, path, body, (_LISTED,), **{"team": "listed", **more})
