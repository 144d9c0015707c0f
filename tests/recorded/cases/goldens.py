"""Answers as real servers gave them, byte for byte, to each client dialect that can be served from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.fakes.provider_script import Raw
from tests.recorded.case import Case, Server, Spoken, json_body
from tests.recorded.cases.prompts import CLIENT_PATHS, fields

GOLDEN = Path(__file__).parents[2] / "dialects" / "golden"
_SPEAKS: dict[Spoken, tuple[str, ...]] = {
    "chat": (
        *("azure_chat.sse", "deepseek_reasoning.sse", "llamacpp_chat.json", "llamacpp_chat.sse", "llamacpp_error.json"),
        *("llamacpp_logprobs.sse", "openai_chat.sse", "openai_tools.sse", "spaced_crlf.sse", "two_choices.sse"),
        *("vllm_continuous.sse", "vllm_error.sse"),
    ),
    "messages": (
        *("anthropic_message.json", "anthropic_overloaded.sse", "anthropic_padded.sse", "anthropic_tools.sse"),
        *("llamacpp_messages.json", "llamacpp_messages.sse", "llamacpp_messages_headless.sse"),
    ),
    "responses": (
        *("openai_responses.json", "openai_responses.sse", "openai_responses_failed.sse"),
        *("openai_responses_incomplete.sse", "openai_responses_refusal.sse", "openai_responses_tools.sse"),
        "vllm_responses.sse",
    ),
}
_CLIENTS: tuple[Spoken, ...] = ("chat", "responses", "messages")
_BESIDE = (
    *("openai-processing-ms: 12", "openai-version: 2020-10-01", "openai-organization: org-of-the-operator"),
    *("x-ratelimit-remaining-requests: 99", "x-ratelimit-reset-requests: 6m0s", "x-ratelimit-limit-tokens: many\x01"),
    *("anthropic-ratelimit-requests-remaining: 5", "set-cookie: a=b", "server: scripted", "x-should-retry: false"),
)
"""Headers of an answer, of which some are relayed and some are not."""


def cases() -> Iterator[Case]:
    for speaks, names in _SPEAKS.items():
        for client in _CLIENTS:
            for name in names:
                yield _case(client, speaks, name)


def _case(client: Spoken, speaks: Spoken, name: str) -> Case:
    stream, body = name.endswith(".sse"), (GOLDEN / name).read_bytes()
    status = "500 Failed" if name.endswith("error.json") else "200 OK"
    lines = [f"HTTP/1.1 {status}", f"content-type: {'text/event-stream' if stream else 'application/json'}", *_BESIDE]
    head = "\r\n".join([*lines, f"content-length: {len(body)}"]).encode() + b"\r\n\r\n"
    server = Server(f"golden.{client}.{name}", speaks, Raw((head + body,)), open_to="plain")
    asked = {"model": server.name, **fields(client, "plain"), **({"stream": True} if stream else {})}
    return Case(f"{client} over {speaks}: golden {name}", CLIENT_PATHS[client], json_body(**asked), (server,))
