"""The whole path with the vendor's SDK as client, the gateway in its own process, scripted providers behind it."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest
from openai import APIStatusError, AsyncOpenAI

from tests.e2e.conftest import Providers, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Reply
from tests.support.naming import unique
from tests.support.waiting import until

HELLO: list[Any] = [{"role": "user", "content": "Say hello to the whole team"}]
HARD = (
    "Prove that every finite group in which each element has order at most two is abelian, and determine all possible "
    "orders of such a group. Then derive the number of subgroups of index two when the order is 32, step by step."
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


async def ask(openai: AsyncOpenAI, text: str, **more: Any) -> tuple[Any, httpx.Headers]:
    """The completion and the response's headers."""
    raw = await openai.chat.completions.with_raw_response.create(
        model=more.pop("model", "small"), messages=[{"role": "user", "content": text}], **more
    )
    return raw.parse(), raw.headers


async def test_a_plain_answer_comes_through_unchanged(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("plain"))
    answer, headers = await ask(openai, "Say hello", user="u1", metadata={"x": "1"}, extra_body={"tomorrow": None})
    assert answer.choices[0].message.content == providers.small.last.text_sent
    assert answer.usage.completion_tokens == providers.small.last.tokens_sent
    sent = providers.small.last.json
    assert sent == {
        "model": "scripted-small", "messages": [{"role": "user", "content": "Say hello"}], "user": "u1",
        "metadata": {"x": "1"}, "tomorrow": None,
    }  # fmt: skip
    assert headers["x-thriftgate-backend"] == "small"
    assert headers["x-thriftgate-cache"] == "off"
    assert headers["x-request-id"].startswith("req_")
    assert float(headers["x-thriftgate-cost-usd"]) > 0


async def test_a_stream_comes_through_and_usage_only_when_asked(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("plain"))
    for wanted in (False, True):
        more: dict[str, Any] = {"stream_options": {"include_usage": True}} if wanted else {}
        stream = await openai.chat.completions.create(model="small", messages=HELLO, stream=True, **more)
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == providers.small.last.text_sent
        assert [chunk for chunk in chunks if not chunk.choices] == ([chunks[-1]] if wanted else [])
        assert providers.small.last.json["stream_options"] == {"include_usage": True}


async def test_the_clients_key_never_reaches_a_backend_nor_a_backends_key_a_client(
    gateway: GatewayProcess, providers: Providers
) -> None:
    key = await gateway.key("plain")
    providers.small.script(Reply(), Fail(401, message="bad key sk-upstream-small-secret"), Fail(500))
    openai = client(gateway, key)
    _, headers = await ask(openai, "one")
    assert providers.small.last.header(b"authorization") == b"Bearer sk-upstream-small-secret"
    for exchange in providers.small.exchanges:
        assert key.encode() not in exchange.body + b"".join(b": ".join(pair) for pair in exchange.headers)
    assert "sk-upstream" not in str(headers)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, it must not tell
        await ask(openai, "two")
    assert "sk-upstream" not in str(caught.value)
    assert "sk-upstream" not in gateway.log
    assert key not in gateway.log


async def test_an_easy_question_goes_to_the_small_tier_and_a_hard_one_to_the_large(
    gateway: GatewayProcess, providers: Providers
) -> None:
    openai = client(gateway, await gateway.key("plain"))
    _, easy = await ask(openai, "What is the capital of France?", model="auto")
    _, hard = await ask(openai, HARD, model="auto")
    assert easy["x-thriftgate-backend"] == "small"
    assert hard["x-thriftgate-backend"] in ("large", "claude")
    assert float(easy["x-thriftgate-difficulty"]) < float(hard["x-thriftgate-difficulty"])


async def test_a_backend_that_speaks_anthropic_answers_an_openai_client(
    gateway: GatewayProcess, providers: Providers
) -> None:
    openai = client(gateway, await gateway.key("plain"))
    answer, _ = await ask(openai, "Say hello", model="claude", max_tokens=50)
    assert providers.claude.last.path == "/v1/messages"
    assert answer.choices[0].message.content == providers.claude.last.text_sent
    assert answer.choices[0].finish_reason == "stop"
    stream = await openai.chat.completions.create(model="claude", messages=HELLO, stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == providers.claude.last.text_sent


async def test_a_failing_backend_is_retried_then_another_answers(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("plain"))
    providers.small.script(Fail(500), Reply())
    _, headers = await ask(openai, "What is the capital of Spain?", model="auto")
    assert headers["x-thriftgate-backend"] == "small"
    providers.small.script(Fail(500), Fail(500))
    _, headers = await ask(openai, "What is the capital of Italy?", model="auto")
    assert headers["x-thriftgate-backend"] != "small"
    providers.small.script(Reply(logprob=-3.0))  # closes the breaker again; and an unsure answer is escalated
    _, headers = await ask(openai, "What is the capital of Peru?", model="auto")


async def test_an_unsure_answer_is_escalated_before_the_client_sees_it(
    gateway: GatewayProcess, providers: Providers
) -> None:
    key = await gateway.key("plain")
    openai = client(gateway, key)
    providers.small.script(Reply(logprob=-4.0))
    answer, headers = await ask(openai, "What is the capital of Portugal?", model="auto")
    assert headers["x-thriftgate-escalated"] == "true"
    assert headers["x-thriftgate-backend"] != "small"
    assert providers.small.last.json["logprobs"] is True
    assert answer.choices[0].logprobs is None
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        found = (await http.get(f"{gateway.base}/v1/requests/{headers['x-request-id']}")).json()
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["escalated", "ok"]


async def test_the_same_question_is_answered_from_the_cache_streamed_or_not(
    gateway: GatewayProcess, providers: Providers
) -> None:
    openai = client(gateway, await gateway.key("cached"))
    first, _ = await ask(openai, "Name three rivers of Europe", temperature=0)
    count = len(providers.small.exchanges)
    again, headers = await ask(openai, "Name three rivers of Europe", temperature=0)
    assert headers["x-thriftgate-cache"] == "exact"
    assert again.choices[0].message.content == first.choices[0].message.content
    stream = await openai.chat.completions.create(
        model="small", temperature=0, stream=True,
        messages=[{"role": "user", "content": "Name three rivers of Europe"}],
    )  # fmt: skip
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == first.choices[0].message.content
    assert len(providers.small.exchanges) == count


async def test_another_team_never_sees_a_cached_answer(gateway: GatewayProcess, providers: Providers) -> None:
    mine, theirs = client(gateway, await gateway.key("cached")), client(gateway, await gateway.key("strangers"))
    asked = unique("What is our secret codename?")
    await ask(mine, asked, temperature=0)
    _, headers = await ask(theirs, asked, temperature=0)
    assert headers["x-thriftgate-cache"] == "miss"


@pytest.mark.heavy
async def test_a_paraphrase_is_answered_but_its_opposite_is_not(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("cached"))
    await ask(openai, "How do I turn on the guest network of the office router?", temperature=0)
    asked = "Please, how do I turn on the guest network of the office router?"

    async def answered() -> bool:
        _, headers = await ask(openai, asked, temperature=0, extra_headers={"x-thriftgate-cache": "only"})
        return headers["x-thriftgate-cache"] == "semantic"

    await until(answered, not_yet=(APIStatusError,))  # the embedder loads after the gateway is ready
    _, headers = await ask(openai, "How do I turn off the guest network of the office router?", temperature=0)
    assert headers["x-thriftgate-cache"] == "miss"


async def test_a_long_conversation_is_trimmed_to_the_policys_limit(
    gateway: GatewayProcess, providers: Providers
) -> None:
    openai = client(gateway, await gateway.key("short"))
    history: list[Any] = [{"role": "system", "content": "Be brief."}]
    for number in range(30):
        history += [
            {"role": "user", "content": f"Question {number}: what about the invoice of customer {number}?"},
            {"role": "assistant", "content": f"Answer {number}: it was sent to customer {number} last week."},
        ]
    history.append({"role": "user", "content": "And the last one?"})
    raw = await openai.chat.completions.with_raw_response.create(model="small", messages=history)
    sent = providers.small.last.json["messages"]
    assert sent[0] == history[0]
    assert sent[-1] == history[-1]
    assert len(sent) < len(history)
    assert int(raw.headers["x-thriftgate-trimmed-tokens"]) > 0


async def test_models_are_listed_as_the_policy_allows(gateway: GatewayProcess) -> None:
    openai = client(gateway, await gateway.key("cached"))
    names = [model.id async for model in openai.models.list()]
    backends = {"small", "large", "claude"}
    assert {"auto", "mine", *backends, *(f"scripted-{name}" for name in backends)} == set(names)


async def test_the_flight_record_is_for_the_keys_owner(gateway: GatewayProcess, providers: Providers) -> None:
    mine, theirs = await gateway.key("plain"), await gateway.key("plain", "--name", "a colleague")
    _, headers = await ask(client(gateway, mine), "Say hello")
    url = f"{gateway.base}/v1/requests/{headers['x-request-id']}"
    async with httpx.AsyncClient(timeout=30) as http:
        own = await http.get(url, headers={"authorization": f"Bearer {mine}"})
        other = await http.get(url, headers={"authorization": f"Bearer {theirs}"})
    assert (own.status_code, other.status_code) == (200, 404)
    assert "Say hello" not in own.text
    assert own.json()["attempts"][0]["backend"] == "small"


async def test_metrics_need_an_admin_key_and_health_needs_none(gateway: GatewayProcess, providers: Providers) -> None:
    plain, admin = await gateway.key("plain"), await gateway.key("plain", "--scope", "admin")
    async with httpx.AsyncClient(timeout=30) as http:
        assert (await http.get(f"{gateway.base}/metrics")).status_code == 401
        refused = await http.get(f"{gateway.base}/metrics", headers={"authorization": f"Bearer {plain}"})
        shown = await http.get(f"{gateway.base}/metrics", headers={"authorization": f"Bearer {admin}"})
        health = await http.get(f"{gateway.base}/health")
    assert refused.status_code == 403
    assert "thriftgate_requests_total{" in shown.text
    assert health.json()["parts"]["state"] == "ok"


async def test_the_access_log_has_a_json_line_per_request_without_its_prompt(
    gateway: GatewayProcess, providers: Providers
) -> None:
    _, headers = await ask(client(gateway, await gateway.key("plain")), "the purple elephant sings")
    await until(lambda: headers["x-request-id"] in gateway.log)
    line = next(line for line in gateway.log.splitlines() if headers["x-request-id"] in line)
    assert orjson.loads(line)["backend"] == "small"
    assert "purple elephant" not in gateway.log
