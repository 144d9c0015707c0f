"""Apps that speak OpenAI's Responses, over backends that speak it, chat, or Anthropic's messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import orjson
import pytest
from openai.types.responses import Response
from openai.types.responses.response_item_list import ResponseItemList

from loadtests.ports import free_port
from tests.e2e.conftest import client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Exchange, Fail, Provider, Reply
from tests.support.naming import unique

pytestmark = pytest.mark.timeout(120)  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: native, kind: openai, base_url: "http://127.0.0.1:{native}/v1", model: n1, tier: small,
      window_tokens: 8000, capabilities: [tools, vision, json_schema, logprobs, reasoning],
      price: {{input: 1, output: 2}}}}
  - {{name: chatty, kind: openai, base_url: "http://127.0.0.1:{chatty}/v1", model: c1, tier: small,
      dialects: [openai_chat], window_tokens: 8000, capabilities: [tools, vision, json_schema, logprobs, reasoning],
      price: {{input: 1, output: 2}}}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{claude}/v1", model: claude-sonnet-4-5, tier: hosted,
      window_tokens: 200000, capabilities: [tools, vision, json_schema, reasoning], price: {{input: 3, output: 15}}}}
local_model: {{enabled: false}}
"""
BACKENDS = ("native", "chatty", "claude")
POLICIES = {
    "plain": "cache: {enabled: false}\n",
    "storing": "cache: {enabled: false}\ndata: {store_prompts: true}\n",
    "others": "cache: {enabled: false}\ndata: {store_prompts: true}\n",
    "cached": "data: {store_prompts: true}\n",
}
TOOL: Any = {
    "type": "function", "name": "search", "strict": False, "description": "Search.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in BACKENDS}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("responses") / "home", CONFIG.format(**ports), POLICIES, workers=2
    ) as process:
        yield process


@pytest.fixture
async def providers(ports: dict[str, int]) -> AsyncIterator[dict[str, Provider]]:
    opened = {name: Provider(port=port) for name, port in ports.items()}
    for provider in opened.values():
        await provider.listen()
    yield opened
    for provider in opened.values():
        await provider.refuse()


def texts(exchange: Exchange) -> list[str]:
    """Everything said in what a provider received, whatever its dialect."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name in ("text", "content", "system", "instructions", "output", "input") and isinstance(inner, str):
                    found.append(inner)
                else:
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    body = exchange.json
    walk({name: body[name] for name in ("system", "instructions", "messages", "input") if name in body})
    return found


@pytest.mark.parametrize("model", BACKENDS)
async def test_a_plain_answer_validates_and_says_what_the_backend_said(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str
) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    provider = providers[model]
    provider.script(Reply(reasoning="let me think", cached_tokens=1))
    answer = await sdk.responses.create(
        model=model, input="Say hello", instructions="Be brief.", max_output_tokens=3000, reasoning={"effort": "low"}
    )
    Response.model_validate(answer.model_dump(mode="json", exclude_unset=True))
    assert answer.output_text == provider.last.text_sent
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.status == "completed"
    assert answer.instructions == "Be brief."
    assert answer.usage is not None
    assert answer.usage.input_tokens_details.cached_tokens == 1
    assert answer.usage.output_tokens_details.reasoning_tokens == 3
    assert texts(provider.last) == ["Be brief.", "Say hello"]


@pytest.mark.parametrize("model", BACKENDS)
async def test_a_stream_is_accumulated_by_the_sdk(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str
) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    provider = providers[model]
    provider.script(Reply(text="one two three four", reasoning="hm hm"))
    async with sdk.responses.stream(model=model, input="Count", max_output_tokens=3000) as stream:
        events = [event async for event in stream]
        whole = await stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole.output_text == "one two three four"
    assert len(pieces) > 1
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    assert whole.usage is not None
    Response.model_validate(whole.model_dump(mode="json", exclude_unset=True, warnings=False))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", BACKENDS)
async def test_a_tool_loop_runs_over_every_backend(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str, stream: bool
) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    provider = providers[model]

    async def ask(given: list[Any]) -> Any:
        if not stream:
            return await sdk.responses.create(model=model, input=given, tools=[TOOL])
        async with sdk.responses.stream(model=model, input=given, tools=[TOOL]) as events:
            return await events.get_final_response()

    history: list[Any] = [{"role": "user", "content": "Look it up"}]
    provider.script(Reply(tool="search"))
    first = await ask(history)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (call.name, call.arguments) == ("search", '{"query": "Look it up"}')
    history += [item.to_dict() for item in first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "42"})
    second = await ask(history)
    assert second.output_text == provider.last.text_sent
    assert "42" in texts(provider.last)
    assert call.call_id.encode() in provider.last.body


@pytest.mark.parametrize("model", BACKENDS)
async def test_a_conversation_goes_on_by_naming_the_last_response(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str
) -> None:
    sdk = client(gateway, await gateway.key("storing"))
    provider = providers[model]
    first = await sdk.responses.create(model=model, input="My name is Ada", instructions="Be brief.")
    async with sdk.responses.stream(model=model, input="Who am I?", previous_response_id=first.id) as stream:
        second = await stream.get_final_response()
    assert texts(provider.last) == ["My name is Ada", first.output_text, "Who am I?"]
    third = await sdk.responses.create(model=model, input="Sure?", previous_response_id=second.id)
    assert (second.previous_response_id, third.previous_response_id) == (first.id, second.id)
    assert texts(provider.last)[-2:] == [second.output_text, "Sure?"]
    assert len(texts(provider.last)) == 5
    if model == "native":
        assert provider.last.json["store"] is False
        assert not provider.last.json.get("previous_response_id")


async def test_a_conversation_goes_on_over_another_backend(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    sdk = client(gateway, await gateway.key("storing"))
    providers["native"].script(Reply(tool="search", reasoning="hm"))
    first = await sdk.responses.create(model="native", input="Look it up", tools=[TOOL])
    call = next(item for item in first.output if item.type == "function_call")
    for model in ("claude", "chatty"):
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
        answer = await sdk.responses.create(model=model, input=[result], previous_response_id=first.id, tools=[TOOL])
        assert answer.output_text
        assert texts(providers[model].last)[-1] == "42"


@pytest.mark.parametrize("model", BACKENDS)
async def test_a_long_answer_is_stored_when_it_was_streamed(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str
) -> None:
    sdk = client(gateway, await gateway.key("others"))  # the provider gives the same ids in every test
    providers[model].script(Reply(text="first " + "long" * 100_000))
    async with sdk.responses.stream(model=model, input="Tell me all") as stream:
        made = await stream.get_final_response()
    stored = await sdk.responses.retrieve(made.id)
    assert len(stored.output_text) == len(made.output_text) > 400_000


async def test_a_reference_stands_for_a_stored_item(gateway: GatewayProcess, providers: dict[str, Provider]) -> None:
    sdk = client(gateway, await gateway.key("storing"))
    first = await sdk.responses.create(model="chatty", input="My name is Ada")
    given: Any = [{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "Who?"}]
    await sdk.responses.create(model="chatty", input=given)
    assert texts(providers["chatty"].last) == [first.output_text, "Who?"]


async def test_a_stored_response_is_shown_listed_and_deleted(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    sdk = client(gateway, await gateway.key("storing"))
    made = await sdk.responses.create(
        model="chatty", input=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                               {"role": "user", "content": "c"}],
    )  # fmt: skip
    shown = await sdk.responses.retrieve(made.id)
    assert shown.output == made.output
    listed = await sdk.responses.input_items.list(made.id, order="asc", limit=2)
    assert [item.content[0].text for item in listed.data] == ["a", "b"]  # type: ignore[union-attr,index]
    assert [item.content[0].text async for item in listed] == ["a", "b", "c"]  # type: ignore[union-attr,index]
    ResponseItemList.model_validate(listed.model_dump(mode="json") | {"object": "list", "first_id": "", "last_id": ""})
    with pytest.raises(openai.BadRequestError):
        await sdk.responses.cancel(made.id)
    await sdk.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError):
        await sdk.responses.create(model="chatty", input="?", previous_response_id=made.id)


async def test_another_team_does_not_find_a_response(gateway: GatewayProcess, providers: dict[str, Provider]) -> None:
    mine, theirs = client(gateway, await gateway.key("storing")), client(gateway, await gateway.key("others"))
    made = await mine.responses.create(model="chatty", input="Our secret")
    with pytest.raises(openai.NotFoundError):
        await theirs.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        await theirs.responses.input_items.list(made.id)
    with pytest.raises(openai.NotFoundError):
        await theirs.responses.delete(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        await theirs.responses.create(model="chatty", input="?", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"


async def test_what_the_client_does_not_want_stored_is_not(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    sdk = client(gateway, await gateway.key("storing"))
    made = await sdk.responses.create(model="chatty", input="Forget this", store=False)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(made.id)


async def test_a_team_without_storing_is_told_so(gateway: GatewayProcess, providers: dict[str, Provider]) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    with pytest.raises(openai.PermissionDeniedError, match=r"data\.store_prompts"):
        await sdk.responses.create(model="chatty", input="hello", store=True)
    made = await sdk.responses.create(model="chatty", input="hello")
    assert made.to_dict()["store"] is False
    with pytest.raises(openai.BadRequestError, match="store_prompts") as caught:
        await sdk.responses.create(model="chatty", input="?", previous_response_id=made.id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_a_cached_answer_is_a_response_of_its_own(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    sdk = client(gateway, await gateway.key("cached"))
    asked: dict[str, Any] = {"model": "chatty", "input": unique("Name three rivers"), "temperature": 0}
    first = await sdk.responses.create(**asked)
    raw = await sdk.responses.with_raw_response.create(**asked, metadata={"a": "b"})
    again = raw.parse()
    assert raw.headers["x-thriftgate-cache"] == "exact"
    async with sdk.responses.stream(**asked) as stream:
        streamed = await stream.get_final_response()
    assert first.output_text == again.output_text == streamed.output_text
    assert again.metadata == {"a": "b"}
    assert len({first.id, again.id, streamed.id}) == 3
    for one in (first, again, streamed):
        assert (await sdk.responses.retrieve(one.id)).output_text == first.output_text


@pytest.mark.parametrize("model", BACKENDS)
async def test_a_stream_that_breaks_ends_in_an_error_and_never_completes(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str
) -> None:
    key = await gateway.key("storing")
    providers[model].script(Reply(tokens=50, cut="rst", after=5))
    body = {"model": model, "input": "go on", "stream": True}
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        raw = await http.post(f"{gateway.base}/v1/responses", json=body)
    names = [line.removeprefix("event: ") for line in raw.text.splitlines() if line.startswith("event: ")]
    assert names[0] == "response.created"
    assert "response.output_text.delta" in names
    assert names[-1] == "error"
    assert not {"response.completed", "response.incomplete", "response.output_text.done"} & set(names)
    numbers = [orjson.loads(line[6:])["sequence_number"] for line in raw.text.splitlines() if line.startswith("data: ")]
    assert numbers == list(range(len(names)))

    providers[model].script(Reply(tokens=50, cut="rst", after=5))
    with pytest.raises(openai.APIError):
        async with client(gateway, key).responses.stream(model=model, input="go on") as stream:
            await stream.get_final_response()


@pytest.mark.parametrize("model", ["chatty", "claude"])
async def test_what_the_backend_cannot_do_is_refused_by_name(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str
) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.responses.create(
            model=model, input="?", tools=[TOOL, {"type": "code_interpreter", "container": {"type": "auto"}}]
        )
    assert caught.value.param == "tools[1].type"
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.responses.create(model=model, input="?", background=True)
    assert caught.value.param == "background"
    providers[model].script(Fail(400, message="too hot", param="temperature"))
    with pytest.raises(openai.BadRequestError, match="too hot"):
        await sdk.responses.create(model=model, input="?", temperature=1)


async def test_a_schema_is_asked_of_the_backend_and_parsed_by_the_sdk(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    from pydantic import BaseModel

    class City(BaseModel):
        name: str

    sdk = client(gateway, await gateway.key("plain"))
    for model in BACKENDS:
        providers[model].script(Reply(text='{"name": "Bilbao"}'))
        answer = await sdk.responses.parse(model=model, input="Which city?", text_format=City)
        assert answer.output_parsed == City(name="Bilbao")
        assert b'"additionalProperties":false' in providers[model].last.body.replace(b" ", b"")
