"""When a call that keeps a prompt in the cache pays, and what it sends."""

from __future__ import annotations

import orjson
import pytest

from gateway.context.strategies.keep_alive import RETURNS_AGENT, RETURNS_ALONE, Cached, cost_and_gain, smallest
from gateway.dialects.clients import DIALECTS
from gateway.domain.money.price import Price
from gateway.domain.request import Controls
from tests.support.requests import request_in

PRICE = Price(3_000_000, 15_000_000, 300_000, 3_750_000, 6_000_000)


@pytest.mark.parametrize(
    ("long_tokens", "share", "pays"),
    [(0, RETURNS_AGENT, True), (0, RETURNS_ALONE, False), (90_000, RETURNS_AGENT, False), (0, 0.08, False)],
    ids=["agent", "no tools", "kept for an hour anyway", "rare returns"],
)
def test_the_call_pays_if_the_session_probably_continues(long_tokens: int, share: float, pays: bool) -> None:
    cost, gain = cost_and_gain(PRICE, Cached(100_000, long_tokens), share)
    assert cost == 100_000 * 300_000 + 15_000_000
    assert gain == int(share * (100_000 - long_tokens) * 3_450_000)
    assert (gain > cost) is pays


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat"])
def test_the_smallest_request_has_the_same_prompt_and_one_token_of_answer(dialect: str) -> None:
    limit = {"max_completion_tokens": 500} if dialect == "openai_chat" else {}
    request = request_in(dialect, "go on", model="claude", stream=True, metadata={"user_id": "u"}, **limit)
    found = smallest(request)
    assert (found.max_output_tokens, found.stream, found.controls.cache) == (1, False, "bypass")
    body = orjson.loads(found.raw)
    assert body == {
        "model": "claude",
        "max_tokens": 1,
        "metadata": {"user_id": "u"},
        "messages": request.body["messages"],
    }


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat"])
def test_the_prompt_keeps_its_bytes(dialect: str) -> None:
    prompt = b'"messages":[{"role": "user","content":"caf\\u00e9"}],"metadata":{"n":12345678901234567890123}'
    raw = b'{"model":"m", "stream":true,"max_tokens":9,%b}' % prompt
    assert (
        smallest(DIALECTS[dialect].parse(raw, "r", Controls(), {})).raw == b'{"max_tokens":1,"model":"m",%b}' % prompt
    )
