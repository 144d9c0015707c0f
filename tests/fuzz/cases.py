"""What clients of every endpoint send, and how it goes over the wire."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz.mutate import dumped, mutated, spoiled

_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
_SAID = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
_CHAT: dict[str, Any] = {
    "model": "small",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is in it?"}, _IMAGE]},
        _SAID,
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "hello"},
    ],
    "max_tokens": 20,
    "temperature": 0.5,
    "n": 1,
    "stop": ["x"],
    "tools": [_TOOL],
    "tool_choice": "auto",
    "response_format": {"type": "json_object"},
    "user": "u",
    "metadata": {"a": "b"},
    "seed": 1,
    "logprobs": False,
    "service_tier": "auto",
    "store": False,
    "stream": False,
    "reasoning_effort": "low",
}
_STREAM = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "stream": True, "stream_options": {}}
_CLAUDE: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 30,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done", "is_error": False}],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "metadata": {"user_id": "u"},
    "stop_sequences": ["x"],
    "thinking": {"type": "disabled"},
    "stream": False,
}
_RESPONSES: dict[str, Any] = {
    "model": "small",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ],
    "instructions": "Be brief.",
    "max_output_tokens": 30,
    "tools": [{"type": "function", "name": "f", "parameters": {}}],
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "store": True,
    "metadata": {},
    "stream": False,
    "previous_response_id": None,
    "truncation": "auto",
    "include": [],
}
_BATCH = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h", "metadata": {}}
BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        ("/v1/chat/completions", body)
        for body in (_CHAT, _STREAM, {**_STREAM, "model": "claude"}, {**_CHAT, "model": "claude"})
    ),
    *(("/v1/messages", body) for body in (_CLAUDE, {**_CLAUDE, "stream": True}, {**_CLAUDE, "model": "small"})),
    *(
        ("/v1/responses", body)
        for body in (_RESPONSES, {**_RESPONSES, "stream": True}, {"model": "claude", "input": "hi"})
    ),
    (
        "/v1/completions",
        {"model": "small", "prompt": ["a", "b"], "max_tokens": 5, "n": 1, "echo": False, "suffix": None},
    ),
    ("/v1/embeddings", {"model": "small", "input": ["a", "b"], "dimensions": 8, "encoding_format": "float"}),
    ("/v1/moderations", {"model": "small", "input": "a"}),
    ("/v1/rerank", {"model": "small", "query": "a", "documents": ["a", {"text": "b"}], "top_n": 1}),
    ("/v1/audio/speech", {"model": "small", "input": "a", "voice": "v", "response_format": "mp3"}),
    ("/v1/images/generations", {"model": "small", "prompt": "a", "n": 1, "size": "1024x1024", "quality": "hd"}),
    ("/v1/messages/count_tokens", {key: _CLAUDE[key] for key in ("model", "messages", "tools", "system")}),
    ("/v1/messages/batches", {"requests": [{"custom_id": "1", "params": _CLAUDE}]}),
    ("/v1/batches", dict(_BATCH)),
    ("/v1/requests/req_1/feedback", {"rating": "good", "comment": "c"}),
    ("/admin/keys", {"team": "one", "name": "n", "scopes": ["usage"], "expires": "1d", "allowed_models": ["small"]}),
)
_FORM = (
    b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nsmall\r\n'
    b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\ncontent-type: text/plain\r\n\r\n'
    b'{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":"small","messages":[]}}\r\n--b--\r\n'
)
FORMS = ("/v1/files", "/v1/audio/transcriptions", "/v1/images/edits")
READS = (
    *(
        "/v1/usage?since=7d&until=1d&by=model&savings=true&team=one",
        "/admin/usage?by=team",
        "/v1/models?limit=2&after_id=x",
    ),
    *(
        "/v1/models/small",
        "/v1/files?limit=3&after=file-1&order=asc&purpose=batch",
        "/v1/files/file-1",
        "/v1/batches/b",
    ),
    *(
        "/v1/files/file-1/content",
        "/v1/batches?limit=2&after=b",
        "/v1/messages/batches?limit=2&before_id=b",
        "/metrics",
    ),
    *("/v1/messages/batches/b/results", "/v1/responses/resp_1?include=x&stream=true", "/v1/requests/req_1", "/health"),
    *("/v1/responses/resp_1/input_items?limit=2&after=a&order=asc", "/dashboard", "/dashboard/data?days=30&team=one"),
    *("/admin/keys", "/admin/policies", "/admin/fleet", "/admin/alerts?limit=3&before=9", "/nothing"),
)
_HEADERS = (
    *("x-thriftgate-tier", "x-thriftgate-tags", "x-thriftgate-session", "x-thriftgate-cache", "x-thriftgate-deadline"),
    *("x-thriftgate-priority", "idempotency-key", "anthropic-version", "anthropic-beta", "openai-organization"),
    *("accept-encoding", "origin", "expect", "content-encoding", "x-request-id", "traceparent", "range"),
)


def request(random: Random, key: str, *, honest: bool = False) -> bytes:
    """One request as bytes, after which the client closes; wrong somewhere unless `honest`."""
    headers = [b"host: h", b"connection: close", b"authorization: Bearer " + key.encode()]
    kind = random.random()
    method, body = "POST", b""
    if kind < 0.7 or honest:
        path, value = random.choice(BODIES)
        body = dumped(value if honest else mutated(random, value))
        headers.append(b"content-type: application/json")
    elif kind < 0.8:
        path, body = random.choice(FORMS), spoiled(random, _FORM)
        headers.append(b"content-type: multipart/form-data; boundary=b")
    else:
        method, path = (
            random.choice(("GET", "GET", "GET", "DELETE", "POST", "PUT", "OPTIONS", "HEAD")),
            random.choice(READS),
        )
        path = spoiled(random, path.encode()).decode("latin-1").translate({ord(one): None for one in " \r\n\t"})
    if random.random() < 0.1 and not honest:
        body = spoiled(random, body)
    if random.random() < 0.2 and not honest:
        value = random.choice(
            ("", "x", "1", "-1", "1e9", "a=b,c", "gzip", "100-continue", "é", "x" * 3000, "auto", "only")
        )
        headers.append(f"{random.choice(_HEADERS)}: {value}".encode("latin-1"))
    if method != "GET" or body:
        headers.append(b"content-length: %d" % len(body))
    start = f"{method} {path} HTTP/1.1".encode("latin-1", "replace")
    whole = b"\r\n".join((start, *headers)) + b"\r\n\r\n" + body
    return spoiled(random, whole) if random.random() < 0.05 and not honest else whole
