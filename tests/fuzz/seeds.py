"""Valid requests to every path of the gateway, and a valid policy: what the fuzzers change."""

from __future__ import annotations

from typing import Any

TOOL = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
CHAT: dict[str, Any] = {
    "model": "small",
    "messages": [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hello"},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "user", "content": "hello"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": TOOL, "strict": True}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": True,
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": TOOL, "strict": True}},
    "stream_options": {"include_usage": True},
    "max_tokens": 20,
    "max_completion_tokens": 20,
    "temperature": 0.5,
    "top_p": 0.9,
    "n": 1,
    "stop": ["x"],
    "seed": 1,
    "logit_bias": {"1": 1},
    "logprobs": True,
    "top_logprobs": 2,
    "user": "u",
    "metadata": {"a": "b"},
    "reasoning_effort": "low",
    "service_tier": "auto",
    "store": False,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "modalities": ["text"],
    "prompt_cache_key": "k",
    "prediction": {"type": "content", "content": "x"},
    "verbosity": "low",
}
HELLO: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 20}
RESPONSES: dict[str, Any] = {
    "model": "small",
    "instructions": "be brief",
    "store": True,
    "stream": False,
    "max_output_tokens": 20,
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1", "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "t"}],
            "encrypted_content": "x",
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
        {"role": "user", "content": "hello"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": TOOL, "strict": True}, {"type": "web_search"}],
    "tool_choice": {"type": "function", "name": "f"},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": TOOL}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "previous_response_id": "resp_1",
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "temperature": 0.5,
    "top_p": 0.9,
    "truncation": "auto",
    "parallel_tool_calls": True,
    "conversation": "conv_1",
    "background": False,
    "prompt": {"id": "pmpt_1"},
    "service_tier": "auto",
}
MESSAGES: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 20,
    "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hello"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "ok"}],
                    "is_error": False,
                }
            ],
        },
    ],
    "tools": [
        {"name": "f", "description": "d", "input_schema": TOOL},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 1},
    ],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
    "stream": False,
    "output_config": {"effort": "low"},
    "mcp_servers": [],
    "container": None,
}
COMPLETIONS: dict[str, Any] = {
    "model": "small",
    "prompt": ["hello", [1, 2]],
    "suffix": "x",
    "max_tokens": 5,
    "echo": False,
    "best_of": 1,
    "n": 1,
    "logprobs": 1,
    "stop": ["x"],
    "stream": False,
    "stream_options": {"include_usage": True},
    "logit_bias": {"1": 1},
}
EMBEDDINGS: dict[str, Any] = {"model": "small", "input": ["a", [1, 2]], "dimensions": 3, "encoding_format": "base64"}
PASSED: dict[str, dict[str, Any]] = {
    "/v1/moderations": {"model": "small", "input": ["hello"]},
    "/v1/images/generations": {"model": "small", "prompt": "a cat", "n": 1, "size": "256x256"},
    "/v1/audio/speech": {"model": "small", "input": "hello", "voice": "alloy", "response_format": "wav"},
    "/v1/rerank": {"model": "small", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1},
}
BATCH: dict[str, Any] = {
    "requests": [
        {"custom_id": "a", "params": {**HELLO, "model": "claude"}},
        {"custom_id": "b", "params": {**HELLO, "model": "claude"}},
    ]
}
INFERENCE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", HELLO),
    ("/v1/chat/completions", {**CHAT, "stream": True}),
    ("/v1/chat/completions", {**HELLO, "model": "claude", "stream": True}),
    ("/chat/completions", {**CHAT, "model": "claude"}),
    ("/v1/responses", RESPONSES),
    ("/v1/responses", {"model": "small", "input": "hello", "stream": True, "store": True}),
    ("/v1/responses", {**RESPONSES, "model": "claude", "previous_response_id": None}),
    ("/v1/messages", MESSAGES),
    ("/v1/messages", {**HELLO, "model": "claude"}),
    ("/v1/messages", {**HELLO, "stream": True}),
    ("/v1/messages", {**MESSAGES, "model": "small", "stream": True}),
    ("/v1/completions", COMPLETIONS),
    ("/v1/completions", {**COMPLETIONS, "prompt": "hello", "stream": True}),
    ("/v1/embeddings", EMBEDDINGS),
    *PASSED.items(),
)
"""(path, body): what leaves a row in the ledger when it is answered."""
OTHERS: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("POST", "/v1/messages/count_tokens", MESSAGES),
    ("POST", "/v1/messages/batches", BATCH),
    (
        "POST",
        "/v1/batches",
        {
            "input_file_id": "file-1",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"a": "b"},
        },
    ),
    ("POST", "/v1/requests/req_1/feedback", {"score": 1, "comment": "good", "label": "x", "rating": "good"}),
    ("GET", "/v1/usage?since=1d&until=2026-01-01&by=model&savings=true&team=one&tag=a", None),
    ("GET", "/v1/files?limit=10&after=file-1&purpose=batch&order=asc", None),
    ("GET", "/v1/files/file-1", None),
    ("GET", "/v1/files/file-1/content", None),
    ("DELETE", "/v1/files/file-1", None),
    ("GET", "/v1/batches?limit=10&after=batch_1", None),
    ("GET", "/v1/batches/batch_1", None),
    ("POST", "/v1/batches/batch_1/cancel", None),
    ("GET", "/v1/responses/resp_1?include=a&stream=false&starting_after=0", None),
    ("DELETE", "/v1/responses/resp_1", None),
    ("GET", "/v1/responses/resp_1/input_items?limit=2&order=asc&after=a&before=b", None),
    ("POST", "/v1/responses/resp_1/cancel", None),
    ("GET", "/v1/messages/batches?limit=10&after_id=a&before_id=b", None),
    ("GET", "/v1/messages/batches/b1", None),
    ("GET", "/v1/messages/batches/b1/results", None),
    ("POST", "/v1/messages/batches/b1/cancel", None),
    ("DELETE", "/v1/messages/batches/b1", None),
    ("GET", "/v1/models?limit=5&after_id=a", None),
    ("GET", "/v1/models/small", None),
    ("GET", "/v1/requests/req_1", None),
    ("GET", "/admin/usage?since=1d&by=team&until=1h", None),
    ("GET", "/admin/fleet", None),
    ("GET", "/admin/policies?team=one", None),
    ("GET", "/admin/keys?team=one", None),
    ("DELETE", "/admin/keys/key_1", None),
    ("DELETE", "/admin/keys?team=nobody", None),
    (
        "POST",
        "/admin/keys",
        {"team": "two", "scopes": ["inference"], "expires": "1d", "name": "n", "models": ["small"], "budget_usd": 1},
    ),
    ("GET", "/admin/alerts?limit=5&team=one&since=1d", None),
    ("POST", "/admin/alerts", {"id": "a", "action": "acknowledge", "until": "1d"}),
    ("POST", "/admin/backends/nowhere/drain", {"until": "1m"}),
    ("POST", "/admin/backends/nowhere/undrain", {}),
    ("GET", "/dashboard/data?since=1d&team=one", None),
    ("GET", "/dashboard/static/page.css", None),
    ("GET", "/", None),
    ("GET", "/metrics", None),
    ("GET", "/health", None),
)
POLICY: dict[str, Any] = {
    "team": "mean",
    "organisation": "acme",
    "mode": "route",
    "models": {"auto": {"candidates": ["small", "large"], "quality": "92%", "escalate": False}, "gpt-4o": "auto"},
    "cache": {"scope": "team", "ttl": "7d", "semantic": {"enabled": True, "max_error": "1%", "sampled": True}},
    "context": {"max_input_tokens": 12000},
    "budget": [
        {
            "limit_usd": 500,
            "window": "month",
            "timezone": "Europe/Madrid",
            "alerts": ["50%", "80%"],
            "notify": [{"webhook": "env:HOOK"}],
            "on_exhausted": "downgrade",
        }
    ],
    "limits": {"requests_per_minute": 600, "tokens_per_minute": 400000, "concurrent": 64, "per_key": {"concurrent": 4}},
    "trials": {"share": "5%", "cap_usd": 1},
    "data": {"hosted": "forbidden", "store_prompts": False, "forward": ["files"]},
    "passthrough": ["audio", "images", "moderations", "rerank"],
}
