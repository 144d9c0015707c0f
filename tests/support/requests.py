"""Requests as clients send them: the smallest valid one in each dialect, and `fields` that a test adds or replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import orjson

from gateway.dialects.anthropic_messages import dialect as anthropic_messages
from gateway.dialects.bedrock_converse import dialect as bedrock_converse
from gateway.dialects.gemini_generate import dialect as gemini_generate
from gateway.dialects.ollama_chat import dialect as ollama_chat
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.dialects.openai_completions import dialect as openai_completions
from gateway.dialects.openai_embeddings import dialect as openai_embeddings
from gateway.dialects.openai_responses import dialect as openai_responses
from gateway.domain.record import new_request_id
from gateway.domain.request import CompletionRequest, Controls, DialectName

Content = str | Sequence[Mapping[str, Any]]
"""A user's text or content parts."""
PATHS: Mapping[DialectName, str] = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "openai_completions": "/v1/completions",
    "openai_embeddings": "/v1/embeddings",
    "anthropic_messages": "/v1/messages",
}
_PARSERS: Mapping[DialectName, Callable[..., CompletionRequest]] = {
    "openai_chat": openai_chat.parse,
    "openai_responses": openai_responses.parse,
    "openai_completions": openai_completions.parse,
    "openai_embeddings": openai_embeddings.parse,
    "anthropic_messages": anthropic_messages.parse,
    "gemini_generate": gemini_generate.Endpoint("auto", stream=False).parse,
    "bedrock_converse": bedrock_converse.Endpoint("auto", stream=False).parse,
    "ollama_chat": ollama_chat.parse,
}


def user(content: Content = "hello") -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": content}


def fields_in(
    dialect: DialectName, content: Content = "hello", *, model: str = "auto", **fields: Any
) -> dict[str, Any]:
    """The JSON object of a request in `dialect`."""
    match dialect:
        case "openai_responses" | "openai_embeddings":
            prompt: dict[str, Any] = {"input": content}
        case "openai_completions":
            prompt = {"prompt": content}
        case "anthropic_messages":
            prompt = {"max_tokens": 100, "messages": [user(content)]}
        case "gemini_generate":
            prompt = {"contents": [{"role": "user", "parts": [{"text": content}]}]}
        case "bedrock_converse":
            prompt = {"messages": [{"role": "user", "content": [{"text": content}]}]}
        case _:
            prompt = {"messages": [user(content)]}
    return {"model": model, **prompt, **fields}


def body_in(dialect: DialectName, content: Content = "hello", **fields: Any) -> bytes:
    return orjson.dumps(fields_in(dialect, content, **fields))


def request_in(
    dialect: DialectName,
    content: Content = "hello",
    *,
    raw: bytes | None = None,
    request_id: str | None = None,
    controls: Controls | None = None,
    headers: Mapping[bytes, bytes] | None = None,
    **fields: Any,
) -> CompletionRequest:
    """A parsed request in `dialect`; `raw` replaces its whole body."""
    body = body_in(dialect, content, **fields) if raw is None else raw
    return _PARSERS[dialect](body, request_id or new_request_id(), controls or Controls(), headers or {})


def chat_fields(content: Content = "hello", **fields: Any) -> dict[str, Any]:
    return fields_in("openai_chat", content, **fields)


def chat_body(content: Content = "hello", **fields: Any) -> bytes:
    return body_in("openai_chat", content, **fields)


def chat_request(content: Content = "hello", **options: Any) -> CompletionRequest:
    """`options`: those of `request_in`, and fields of the body."""
    return request_in("openai_chat", content, **options)


def responses_request(content: Content = "hello", **options: Any) -> CompletionRequest:
    return request_in("openai_responses", content, **options)


def messages_request(content: Content = "hello", **options: Any) -> CompletionRequest:
    return request_in("anthropic_messages", content, **options)


def completions_request(content: str = "hello", **options: Any) -> CompletionRequest:
    return request_in("openai_completions", content, **options)


def small_body(content: Content = "hello there", **fields: Any) -> bytes:
    """A chat body that names the backend `small`, so that no router grades it."""
    return chat_body(content, **{"model": "small", **fields})


def small_request(content: Content = "hello there", **options: Any) -> CompletionRequest:
    """A chat request that names the backend `small`, so that no router grades it, and that the cache may answer."""
    return chat_request(content, **{"model": "small", "temperature": 0, **options})


async def post(
    http: httpx.AsyncClient,
    dialect: DialectName,
    content: Content = "hello",
    *,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    **fields: Any,
) -> httpx.Response:
    """Send a request of `fields` to the gateway at `http`'s base URL, with `key` unless `http` has one."""
    given = {**({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
    return await http.post(PATHS[dialect], json=fields_in(dialect, content, **fields), headers=given)


async def post_chat(http: httpx.AsyncClient, content: Content = "hello", **options: Any) -> httpx.Response:
    """`options`: those of `post`, and fields of the body."""
    return await post(http, "openai_chat", content, **options)


async def cache_result(http: httpx.AsyncClient, content: Content, *, cache: str = "", **options: Any) -> str:
    """How the cache served a chat request: `exact`, `semantic`, `miss` …; the status if it was refused.

    `cache`: the request's own directive, such as `only`, which is refused with 504 when the cache has no answer.
    """
    headers = {"x-thriftgate-cache": cache} if cache else {}
    reply = await post_chat(http, content, headers=headers, **{"temperature": 0, **options})
    return str(reply.headers.get("x-thriftgate-cache", "")) if reply.status_code == 200 else str(reply.status_code)
