"""The policy's limit of output tokens, as clients of every dialect meet it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.api.conftest import Api
from tests.fakes.client import Client
from tests.fakes.provider import Reply
from tests.support.requests import body_in

CAP = 50
POLICY = "team: search\ncache: {enabled: false}\n"
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": ("/v1/chat/completions", {"max_completion_tokens": 5000}),
    "openai_completions": ("/v1/completions", {"max_tokens": 5000}),
    "openai_responses": ("/v1/responses", {"max_output_tokens": 5000}),
    "anthropic_messages": ("/v1/messages", {"max_tokens": 5000}),
    "gemini_generate": ("/v1beta/models/small:generateContent", {"generationConfig": {"maxOutputTokens": 5000}}),
    "bedrock_converse": ("/model/small/converse", {"inferenceConfig": {"maxTokens": 5000}}),
    "ollama_chat": ("/api/chat", {"options": {"num_predict": 5000}, "stream": False}),
}
"""Dialect → path, and the fields in which its clients ask for many tokens."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


async def ask(api: Api, dialect: str, *, policy: str, **fields: Any) -> Client:
    (api.folder / "search.yaml").write_text(POLICY + policy)
    await api.policies.reload()
    body = body_in(dialect, model="small", **fields)
    if dialect in ("gemini_generate", "bedrock_converse"):
        body = orjson.dumps({name: value for name, value in orjson.loads(body).items() if name != "model"})
    return await api.client(body, path=ASKS[dialect][0]).run()


def sent_limits(api: Api) -> set[int]:
    body = orjson.loads(api.gateway.provider.last.body)
    return {body[name] for name in LIMITS if body.get(name) is not None}


@pytest.mark.parametrize("dialect", ASKS)
async def test_a_client_that_asks_for_more_gets_the_limit_and_a_header(api: Api, dialect: str) -> None:
    client = await ask(api, dialect, policy=f"context: {{max_output_tokens: {CAP}}}\n", **ASKS[dialect][1])
    assert client.status == 200, client.body
    assert sent_limits(api) == {CAP}
    assert client.headers["x-thriftgate-output-cap"] == str(CAP)


@pytest.mark.parametrize("dialect", [name for name in ASKS if name != "anthropic_messages"])
async def test_a_request_without_a_limit_gets_it(api: Api, dialect: str) -> None:
    more = {"stream": False} if dialect == "ollama_chat" else {}
    client = await ask(api, dialect, policy=f"context: {{max_output_tokens: {CAP}}}\n", **more)
    assert client.status == 200, client.body
    assert sent_limits(api) == {CAP}


async def test_a_lower_limit_of_the_client_stays(api: Api) -> None:
    client = await ask(api, "openai_chat", policy=f"context: {{max_output_tokens: {CAP}}}\n", max_tokens=20)
    assert sent_limits(api) == {20}
    assert "x-thriftgate-output-cap" not in client.headers


async def test_limits_of_other_servers_are_lowered_too(api: Api) -> None:
    await ask(api, "openai_chat", policy=f"context: {{max_output_tokens: {CAP}}}\n", n_predict=9000)
    assert orjson.loads(api.gateway.provider.last.body)["n_predict"] == CAP
    assert sent_limits(api) == {CAP}


async def test_the_rule_of_a_model_goes_before_the_teams_limit(api: Api) -> None:
    rule = "models: {small: {candidates: [small], max_output_tokens: 70}}\ncontext: {max_output_tokens: 50}\n"
    await ask(api, "openai_chat", policy=rule, max_tokens=900)
    assert sent_limits(api) == {70}


async def test_an_answer_that_reaches_the_limit_ends_with_the_finish_reason_length(api: Api) -> None:
    api.gateway.provider.script(Reply(tokens=400))
    client = await ask(api, "openai_chat", policy=f"context: {{max_output_tokens: {CAP}}}\n")
    assert client.json["choices"][0]["finish_reason"] == "length"
    assert client.json["usage"]["completion_tokens"] == CAP


async def test_budgets_hold_money_for_no_more_than_the_limit(api: Api) -> None:
    """The input costs about 10 and the longest allowed answer 500 µUSD; 131,072 tokens would not fit."""
    policy = f"context: {{max_output_tokens: {CAP}}}\nbudget: {{limit_usd: 0.001, window: day}}\n"
    client = await ask(api, "openai_chat", policy=policy, tools=[TOOL])  # an answer with tools is never cut by a budget
    assert client.status == 200, client.body


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
