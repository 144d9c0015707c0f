"""Anthropic's own SDK against the real gateway, over a backend that speaks its dialect and over one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anthropic
import httpx
import orjson
import pytest
from anthropic import AsyncAnthropic

from loadtests.ports import free_port
from tests.dialects.messages_samples import PNG, TOOL, well_formed
from tests.e2e.conftest import POLICIES, Providers
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Provider, Raw, Reply
from tests.support.naming import RUNS, unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

HELLO: list[Any] = [{"role": "user", "content": "Say hello to the whole team"}]
ADAPTIVE: Any = {"type": "adaptive"}
BOTH = pytest.mark.parametrize("model", ["claude", "small"])
"""A backend of the same dialect, and one of another."""
FRAGILE = 9
"""More names for each of the two in every run, for tests after which a backend is left alone for a while."""

BACKEND = """\
  - {{name: {name}, kind: {kind}, base_url: "http://127.0.0.1:{port}/v1", model: scripted-{model}, tier: small,
      window_tokens: 8000, capabilities: [tools, vision, json_schema], api_key: env:UPSTREAM_KEY,
      price: {{input: 1, cached_input: 0.5, output: 4}}}}
"""

Connect = Callable[..., Awaitable[AsyncAnthropic]]


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("small", "large", "claude")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    """One of its own, since what happens to its backends here would be felt elsewhere."""
    names = [
        "small",
        "large",
        "claude",
        *(f"{model}-{n}" for model in ("small", "claude") for n in range(FRAGILE * RUNS)),
    ]
    config = "local_model: {enabled: false}\nbackends:\n"
    for name in names:
        model = name.partition("-")[0]
        kind = "anthropic" if model == "claude" else "openai"
        config += BACKEND.format(name=name, kind=kind, port=ports[model], model=model)
    secrets = {"UPSTREAM_KEY": "sk-upstream-secret"}
    policies = {**POLICIES, "alias": "models: {sonnet: {candidates: [claude]}}\n"}
    with GatewayProcess(tmp_path_factory.mktemp("messages") / "home", config, policies, secrets) as process:
        yield process


@pytest.fixture
async def connect(gateway: GatewayProcess) -> AsyncIterator[Connect]:
    """The vendor's SDK, without its own retries: the gateway's behaviour is what is tested."""
    made: list[AsyncAnthropic] = []

    async def connected(team: str = "plain", **more: Any) -> AsyncAnthropic:
        key = await gateway.key(team)
        made.append(AsyncAnthropic(base_url=gateway.base, **{"api_key": key, "max_retries": 0, **more}))
        return made[-1]

    yield connected
    for client in made:
        await client.close()


def behind(providers: Providers, model: str) -> Provider:
    found: Provider = getattr(providers, model.partition("-")[0])
    return found


def fragile(model: str, case: int, run: int) -> str:
    return f"{model}-{case + FRAGILE * (run - 1)}"


async def ask(client: AsyncAnthropic, model: str, **more: Any) -> Any:
    return await client.messages.create(model=model, **{"max_tokens": 500, "messages": HELLO, **more})


async def streamed(client: AsyncAnthropic, model: str, *, beta: bool = False, **more: Any) -> Any:
    api: Any = client.beta.messages if beta else client.messages
    async with api.stream(model=model, **{"max_tokens": 500, "messages": HELLO, **more}) as stream:
        return await stream.get_final_message()


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


# -- answers -----------------------------------------------------------------------------------------------------------


@BOTH
async def test_plain_and_streamed_answers_are_the_same(connect: Connect, providers: Providers, model: str) -> None:
    client, provider = await connect(), behind(providers, model)
    for answer in (ask, streamed):
        message = await answer(client, model)
        usage = provider.last.usage
        assert usage is not None
        assert text_of(message) == provider.last.text_sent
        assert (message.usage.input_tokens, message.usage.output_tokens) == (usage.input_tokens, usage.output_tokens)
        assert (message.model, message.stop_reason) == (f"scripted-{model}", "end_turn")
        assert message.id.startswith("msg_")
    cut = await ask(client, model, max_tokens=2)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)


async def test_what_the_client_says_reaches_anthropic_as_it_is(
    gateway: GatewayProcess, connect: Connect, providers: Providers
) -> None:
    raw = b'{"max_tokens" : 50, "model":"claude", "top_k":5, "tomorrow": {"x": [1.50, null]}, "temperature": 1.0,\n' \
          b' "messages": [{"role": "user", "content": [{"type": "text", "text": "\\u0068i"}]}]}'  # fmt: skip
    key = await gateway.key("plain")
    headers = {"x-api-key": key, "content-type": "application/json", "anthropic-version": "2023-06-01"}
    async with httpx.AsyncClient(timeout=30) as http:
        url, beta = f"{gateway.base}/v1/messages?beta=true", {"anthropic-beta": "one-1,two-2"}
        reply = await http.post(url, content=raw, headers={**headers, **beta})
    assert reply.status_code == 200
    sent = providers.claude.last
    assert sent.body == raw.replace(b'"claude"', b'"scripted-claude"')
    assert (sent.path, sent.header(b"anthropic-beta")) == ("/v1/messages?beta=true", b"one-1,two-2")
    assert sent.header(b"anthropic-version") == b"2023-06-01"
    assert key.encode() not in b"".join(value for _, value in sent.headers)
    message = await streamed(await connect(), "claude", beta=True, betas=["one-1"])
    assert text_of(message) == providers.claude.last.text_sent
    assert providers.claude.last.path == "/v1/messages?beta=true"


async def test_betas_and_fields_of_tomorrow_do_not_trouble_other_models(connect: Connect, providers: Providers) -> None:
    more = {"betas": ["one-1"], "extra_body": {"tomorrow": {"x": 1}, "context_management": {"edits": []}}}
    message = await streamed(await connect(), "small", beta=True, **more)
    assert text_of(message) == providers.small.last.text_sent
    sent = providers.small.last
    assert sent.header(b"anthropic-beta") is None
    assert sent.json.keys() == {"model", "messages", "max_completion_tokens", "stream", "stream_options"}


@BOTH
@pytest.mark.parametrize("stream", [False, True])
async def test_a_whole_loop_with_a_tool(connect: Connect, providers: Providers, model: str, stream: bool) -> None:
    client, provider = await connect(), behind(providers, model)
    answer = streamed if stream else ask
    provider.script(Reply(tool="weather"), Reply(text="It is sunny."))
    first = await answer(client, model, tools=[TOOL], tool_choice={"type": "any"})
    (call,) = first.content
    assert (first.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "weather")
    assert call.input == {"query": "Say hello to the whole team"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    messages = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = await answer(client, model, tools=[TOOL], messages=messages)
    assert text_of(second) == "It is sunny."
    sent = provider.last.json["messages"]
    if model == "claude":
        assert sent[1]["content"][0]["id"] == sent[2]["content"][0]["tool_use_id"] == call.id
    else:
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == call.id
        assert sent[2]["content"] == "sunny"


@BOTH
async def test_thinking_is_seen_by_who_asked_for_it(connect: Connect, providers: Providers, model: str) -> None:
    client, provider = await connect(), behind(providers, model)
    provider.default = Reply(text="Four.", reasoning="Two and two.")
    for answer in (ask, streamed):
        message = await answer(client, model, thinking=ADAPTIVE)
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert message.content[0].thinking == "Two and two."
        assert message.content[0].signature
        following = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Sure?"}]
        assert text_of(await answer(client, model, messages=following, thinking=ADAPTIVE)) == "Four."
    if model == "small":
        assert [block.type for block in (await streamed(client, model)).content] == ["text"]


async def test_an_image_is_seen_by_models_of_either_kind(connect: Connect, providers: Providers) -> None:
    image = [{"role": "user", "content": [{"type": "image", "source": PNG}, {"type": "text", "text": "What?"}]}]
    client = await connect()
    for model in ("claude", "large"):
        await ask(client, model, messages=image)
    assert providers.claude.last.json["messages"] == image
    part = providers.large.last.json["messages"][0]["content"][0]
    assert part == {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


@BOTH
async def test_what_was_read_from_the_providers_cache_is_told(
    connect: Connect, providers: Providers, model: str
) -> None:
    behind(providers, model).default = Reply(cached_tokens=3)
    for answer in (ask, streamed):
        usage = (await answer(await connect(), model)).usage
        assert (usage.cache_read_input_tokens, usage.input_tokens) == (3, 3)


@BOTH
async def test_an_answer_from_the_cache_is_told_like_a_new_one(
    connect: Connect, providers: Providers, model: str
) -> None:
    client, provider = await connect("cached"), behind(providers, model)
    asked: Any = {
        "temperature": 0,
        "messages": [{"role": "user", "content": unique(f"What does {model} know of caches?")}],
    }
    new = await streamed(client, model, extra_body=asked)
    raw = await client.messages.with_raw_response.create(
        model=model, max_tokens=500, messages=asked["messages"], extra_body=asked
    )
    assert raw.headers["x-thriftgate-cache"] == "exact"
    assert len(provider.exchanges) == 1
    for again in (await raw.parse(), await streamed(client, model, extra_body=asked)):
        assert (again.id, text_of(again), again.usage) == (new.id, text_of(new), new.usage)


async def test_a_long_conversation_is_trimmed(connect: Connect, providers: Providers) -> None:
    turn = [{"role": "user", "content": "word " * 150}, {"role": "assistant", "content": "well " * 150}]
    messages = [*turn, *turn, *HELLO]
    for model in ("claude", "small"):
        assert text_of(await ask(await connect("short"), model, messages=messages))
        assert behind(providers, model).last.json["messages"] == HELLO


# -- bytes -------------------------------------------------------------------------------------------------------------


async def events(gateway: GatewayProcess, model: str, **more: Any) -> httpx.Response:
    headers = {"x-api-key": await gateway.key("plain"), "anthropic-version": "2023-06-01"}
    body = {"model": model, "max_tokens": 500, "messages": HELLO, "stream": True, **more}
    async with httpx.AsyncClient(headers=headers, timeout=30) as http:
        return await http.post(f"{gateway.base}/v1/messages", json=body)


@BOTH
async def test_streams_are_well_formed(gateway: GatewayProcess, providers: Providers, model: str) -> None:
    behind(providers, model).default = Reply(
        text="héllo 😀 wörld", reasoning="hm, so", split=True, crlf=model == "small"
    )
    reply = await events(gateway, model, thinking=ADAPTIVE)
    assert reply.headers["content-type"].startswith("text/event-stream")
    well_formed(reply.content)
    assert "😀" in reply.text


@BOTH
@pytest.mark.parametrize(
    ("case", "odd"),
    [
        (0, Reply(tokens=9, cut="fin", after=3)),
        (1, Reply(tokens=9, cut="rst", after=3)),
        (2, Reply(tokens=9, error_event="It broke.", after=3)),
        (3, Reply(tokens=9, finish="", done=False)),
    ],
)
async def test_a_stream_that_breaks_ends_with_an_error_and_nothing_else(
    gateway: GatewayProcess, connect: Connect, providers: Providers, model: str, case: int, odd: Reply, run: int
) -> None:
    provider, model = behind(providers, model), fragile(model, case, run)
    provider.script(odd, odd)
    reply = await events(gateway, model)
    last = reply.text.rstrip().rpartition("\n\n")[2]
    assert last.startswith("event: error\ndata: ")
    said = orjson.loads(last.partition("data: ")[2])
    kind = "overloaded_error" if odd.error_event and model.startswith("claude") else "api_error"  # as Anthropic said
    assert (said["type"], said["error"]["type"]) == ("error", kind)
    assert said["request_id"] == reply.headers["x-request-id"]
    assert "message_stop" not in reply.text
    with pytest.raises(anthropic.APIError):
        await streamed(await connect(), model)


@BOTH
async def test_a_client_that_hangs_up_stops_the_backend(connect: Connect, providers: Providers, model: str) -> None:
    provider = behind(providers, model)
    provider.script(Reply(tokens=400, drip_s=0.05))
    client = await connect()
    async with client.messages.stream(model=model, max_tokens=500, messages=HELLO) as stream:
        async for text in stream.text_stream:
            assert text
            break
    await until(lambda: provider.last.hung_up)
    assert provider.last.chunks_sent < 400


@BOTH
async def test_every_event_comes_as_soon_as_it_is_there(
    gateway: GatewayProcess, connect: Connect, providers: Providers, model: str
) -> None:
    """The backend pauses until the client has what came before."""
    pieces = (await raw_stream(gateway, providers, model)).split(b"\n\n")
    middle = next(at for at, piece in enumerate(pieces) if b"Say" in piece or b"said" in piece) + 1
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    behind(providers, model).script(Raw((head + b"\n\n".join(pieces[:middle]) + b"\n\n",), then="hang"))
    client = await connect()
    async with client.messages.stream(model=model, max_tokens=500, messages=HELLO) as stream:
        assert await asyncio.wait_for(anext(aiter(stream.text_stream)), 30)


async def raw_stream(gateway: GatewayProcess, providers: Providers, model: str) -> bytes:
    """What the provider streams."""
    provider = behind(providers, model)
    path = "/messages" if model == "claude" else "/chat/completions"
    headers = {"authorization": "Bearer sk-upstream-secret"}
    async with httpx.AsyncClient(timeout=30, headers=headers) as http:
        reply = await http.post(provider.url + path, json={"model": "m", "messages": HELLO, "stream": True})
        return reply.content


# -- errors ------------------------------------------------------------------------------------------------------------


def message_of(error: anthropic.APIStatusError, kind: str) -> str:
    """The message of an error that has Anthropic's shape."""
    body: Any = error.body
    assert body.keys() == {"type", "error", "request_id"}
    assert (body["type"], body["error"].keys(), body["error"]["type"]) == ("error", {"type", "message"}, kind)
    assert body["request_id"] == error.response.headers["request-id"]
    message: str = body["error"]["message"]
    return message


async def refused(client: AsyncAnthropic, kind: type[anthropic.APIStatusError], **more: Any) -> Any:
    with pytest.raises(kind) as caught:
        await ask(client, **{"model": "small", **more})
    return caught.value


async def test_refusals_have_anthropics_shape_and_name_the_field(connect: Connect, providers: Providers) -> None:
    client = await connect()
    nothing = await refused(client, anthropic.BadRequestError, extra_body={"max_tokens": None})
    assert "max_tokens" in message_of(nothing, "invalid_request_error")
    tool = {"type": "bash_20250124", "name": "bash"}
    foreign = await refused(client, anthropic.BadRequestError, tools=[TOOL, tool])
    assert "tools[1]" in message_of(foreign, "invalid_request_error")
    unknown = await refused(client, anthropic.NotFoundError, model="claude-99")
    assert "claude-99" in message_of(unknown, "not_found_error")
    stranger = await refused(await connect(api_key="tg-wrong"), anthropic.AuthenticationError)
    message_of(stranger, "authentication_error")
    long = await refused(
        await connect("short"), anthropic.BadRequestError, messages=[{"role": "user", "content": "word " * 900}]
    )
    assert message_of(long, "invalid_request_error").startswith("prompt is too long")


async def test_the_key_is_taken_in_both_forms(gateway: GatewayProcess, connect: Connect, providers: Providers) -> None:
    client = await connect(api_key=None, auth_token=await gateway.key("plain"))
    assert text_of(await ask(client, "claude"))


@BOTH
@pytest.mark.parametrize(
    ("case", "fail", "error", "kind"),
    [
        (4, Fail(400, "temperature: too hot"), anthropic.BadRequestError, "invalid_request_error"),
        (5, Fail(429, retry_after="60"), anthropic.RateLimitError, "rate_limit_error"),
        (6, Fail(500), anthropic.InternalServerError, "api_error"),
        (7, Fail(502, body="html"), anthropic.InternalServerError, "api_error"),
        (8, Fail(503, body="html"), anthropic.APIStatusError, "overloaded_error"),
    ],
)
async def test_what_backends_refuse_is_told_in_anthropics_shape(
    connect: Connect, providers: Providers, model: str, case: int, fail: Fail, error: Any, kind: str, run: int
) -> None:
    behind(providers, model).default = fail
    caught = await refused(await connect(), error, model=fragile(model, case, run), stream=bool(case % 2))
    message = message_of(caught, kind)
    assert "<" not in message
    if fail.status == 400:
        assert "too hot" in message
    if fail.retry_after:
        assert caught.response.headers["retry-after"] == "60"


async def test_when_no_backend_can_serve_the_gateway_is_overloaded(connect: Connect) -> None:
    hosted = {"x-thriftgate-tier": "hosted"}
    caught = await refused(await connect(), anthropic.APIStatusError, model="auto", extra_headers=hosted)
    assert caught.status_code == 529
    assert "tier" in message_of(caught, "overloaded_error")


# -- counting ----------------------------------------------------------------------------------------------------------


async def test_tokens_are_counted_by_who_would_answer(connect: Connect, providers: Providers) -> None:
    client = await connect()
    betas = ["token-counting-2024-11-01"]
    counted = await client.beta.messages.count_tokens(model="claude", messages=HELLO * 3, betas=betas)
    assert counted.input_tokens == 21
    last = providers.claude.last
    assert (last.path, last.json["model"]) == ("/v1/messages/count_tokens", "scripted-claude")
    assert last.header(b"x-api-key") == b"sk-upstream-secret"
    assert betas[0].encode() in (last.header(b"anthropic-beta") or b"")
    alias = await connect("alias")
    assert (await alias.messages.count_tokens(model="sonnet", messages=HELLO * 3)).input_tokens == 21
    providers.claude.script(Fail(500))
    assert (await client.messages.count_tokens(model="claude", messages=HELLO * 3)).input_tokens not in (0, 21)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await client.messages.count_tokens(model="claude-99", messages=HELLO)
    message_of(unknown.value, "not_found_error")


async def test_tokens_are_counted_here_for_models_of_others(connect: Connect, providers: Providers) -> None:
    client = await connect()
    tools: Any = [TOOL]
    one = await client.messages.count_tokens(model="small", messages=HELLO)
    more = await client.messages.count_tokens(model="small", messages=HELLO * 20, system="Be brief.", tools=tools)
    beta = await client.beta.messages.count_tokens(model="auto", messages=HELLO)
    assert 5 < one.input_tokens == beta.input_tokens < 30
    assert more.input_tokens > 10 * one.input_tokens
    assert not providers.small.exchanges
    with pytest.raises(anthropic.BadRequestError) as caught:
        await client.messages.count_tokens(model="claude", messages=[])
    assert "messages" in message_of(caught.value, "invalid_request_error")
    with pytest.raises(anthropic.AuthenticationError) as stranger:
        await (await connect(api_key="tg-wrong")).messages.count_tokens(model="claude", messages=HELLO)
    message_of(stranger.value, "authentication_error")
