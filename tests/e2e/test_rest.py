"""OpenAI's other endpoints through the served gateway, with its SDK: legacy completions, embeddings, the rest."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from loadtests.ports import free_port
from tests.e2e.conftest import client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Exchange, Fail, Provider, Raw, Reply
from tests.fakes.provider_rest import PNG, SOUND, vector
from tests.support.naming import unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: all, kind: openai, base_url: "http://127.0.0.1:{all}/v1", model: scripted-all, tier: small,
      api_key: env:ALL_KEY, window_tokens: 400, price: {{input: 1, output: 2}}}}
  - {{name: chat, kind: openai, base_url: "http://127.0.0.1:{chat}/v1", model: scripted-chat, tier: large,
      window_tokens: 8000, price: {{input: 1, output: 2}}}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{claude}/v1", model: scripted-claude, tier: hosted,
      window_tokens: 8000, price: {{input: 3, output: 15}}}}
local_model: {{enabled: false}}
"""
POLICIES = {
    "open": """\
cache: {enabled: false}
passthrough: [audio, images, moderations, rerank]
models: {mine: all, one: [all], several: [all, chat]}
""",
    "cached": "passthrough: [audio]\n",
}
CHAT_ONLY = ("/v1/chat/completions",)


@pytest.fixture(scope="module")
def own_ports() -> dict[str, int]:
    return {name: free_port() for name in ("all", "chat", "claude")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, own_ports: dict[str, int]) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("rest") / "home"
    with GatewayProcess(home, CONFIG.format(**own_ports), POLICIES, {"ALL_KEY": "sk-upstream-secret"}) as process:
        yield process


@dataclass
class Behind:
    all: Provider
    chat: Provider
    claude: Provider


@pytest.fixture
async def behind(own_ports: dict[str, int]) -> AsyncIterator[Behind]:
    async with (
        Provider(port=own_ports["all"]) as everything,
        Provider(port=own_ports["chat"], speaks=CHAT_ONLY) as chat,
        Provider(port=own_ports["claude"]) as claude,
    ):
        yield Behind(everything, chat, claude)


async def row(gateway: GatewayProcess, exchange: Exchange) -> dict[str, Any]:
    """The ledger's row of what the provider was asked: it is told the attempt's id, which is the row's."""
    attempt = (exchange.header(b"x-request-id") or b"").decode()

    def look() -> dict[str, Any] | None:
        with closing(sqlite3.connect(gateway.home / "data" / "ledger.sqlite")) as link:
            link.row_factory = sqlite3.Row
            found = link.execute("SELECT * FROM ledger WHERE id = ?", (attempt,)).fetchone()
            return dict(found) if found else None

    return await until(lambda: asyncio.to_thread(look))


async def billed(gateway: GatewayProcess, exchange: Exchange) -> tuple[str, int, int]:
    """Outcome, tokens in and tokens out."""
    found = await row(gateway, exchange)
    return found["outcome"], found["input_tokens"], found["output_tokens"]


async def opened(gateway: GatewayProcess, team: str = "open") -> AsyncOpenAI:
    return client(gateway, await gateway.key(team))


# -- legacy completions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["all", "chat", "claude"])
async def test_a_completion_is_answered_whatever_the_backend_speaks(
    gateway: GatewayProcess, behind: Behind, model: str
) -> None:
    sdk = await opened(gateway)
    found = await sdk.completions.create(model=model, prompt="the word is zebra", max_tokens=50)
    assert (found.object, found.choices[0].finish_reason) == ("text_completion", "stop")
    assert found.choices[0].text == "You said: the word is zebra"
    provider: Provider = getattr(behind, model)
    sent = provider.last.usage
    assert sent is not None
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (sent.input_tokens, sent.output_tokens)
    assert await billed(gateway, provider.last) == ("ok", sent.input_tokens, sent.output_tokens)
    assert (
        provider.last.path
        == {"all": "/v1/completions", "chat": "/v1/chat/completions", "claude": "/v1/messages"}[model]
    )
    if model == "all":
        assert provider.last.header(b"authorization") == b"Bearer sk-upstream-secret"


@pytest.mark.parametrize("model", ["all", "chat", "claude"])
@pytest.mark.parametrize("wants_usage", [True, False])
async def test_a_streamed_completion_has_usage_when_asked_and_is_on_the_ledger(
    gateway: GatewayProcess, behind: Behind, model: str, wants_usage: bool
) -> None:
    sdk = await opened(gateway)
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if wants_usage else {}
    text, finish, usages, empty = "", [], [], 0
    async for chunk in await sdk.completions.create(model=model, prompt="a b c", stream=True, **options):
        assert chunk.object == "text_completion"
        text += "".join(choice.text for choice in chunk.choices)
        finish += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
        empty += not chunk.choices
        usages += [chunk.usage] if chunk.usage else []
    assert (text, finish, empty, len(usages)) == ("You said: a b c", ["stop"], wants_usage, wants_usage)
    last = getattr(behind, model).last
    assert await billed(gateway, last) == ("ok", last.usage.input_tokens, last.usage.output_tokens)


async def test_several_prompts_and_tokens_go_to_a_backend_that_takes_them(
    gateway: GatewayProcess, behind: Behind
) -> None:
    sdk = await opened(gateway)
    found = await sdk.completions.create(model="all", prompt=["one", "two"], n=2, echo=True, logprobs=1)
    assert [choice.text for choice in found.choices] == ["oneYou said: one"] * 2 + ["twoYou said: two"] * 2
    assert found.choices[0].logprobs is not None
    await sdk.completions.create(model="all", prompt=[[1, 2, 3], [4]])
    assert behind.all.last.json["prompt"] == [[1, 2, 3], [4]]
    for prompt in (["one", "two"], [1, 2, 3]):
        for _ in range(2):  # before and after it is known that the backend only chats
            with pytest.raises(openai.BadRequestError) as caught:
                await sdk.completions.create(model="chat", prompt=prompt)
            assert caught.value.param == "prompt"


async def test_a_broken_stream_of_text_is_an_error_and_never_an_end(gateway: GatewayProcess, behind: Behind) -> None:
    behind.all.script(Reply(tokens=20, cut="fin", after=5))
    sdk = await opened(gateway)
    text, finish = "", []
    with pytest.raises((openai.APIError, httpx.RemoteProtocolError)):  # noqa: PT012 - it breaks while it is read
        async for chunk in await sdk.completions.create(model="all", prompt="x", stream=True):
            text += chunk.choices[0].text
            finish += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
    assert (text, finish) == ("t0 t1 t2 t3 t4 ", [])
    outcome, _, output = await billed(gateway, behind.all.last)
    assert (outcome, output) == ("interrupted", 5)


async def test_a_completion_asked_again_comes_from_the_cache_also_as_a_stream(
    gateway: GatewayProcess, behind: Behind
) -> None:
    sdk = await opened(gateway, "cached")
    asked: dict[str, Any] = {"model": "all", "prompt": unique("what is it?"), "temperature": 0}
    first = await sdk.completions.create(**asked)
    raw = await sdk.completions.with_raw_response.create(**asked)
    assert raw.headers["x-thriftgate-cache"] == "exact"
    assert raw.parse().choices[0].text == first.choices[0].text
    text = ""
    async for chunk in await sdk.completions.create(**asked, stream=True):
        text += chunk.choices[0].text
    assert text == first.choices[0].text
    assert len(behind.all.exchanges) == 1


# -- embeddings --------------------------------------------------------------------------------------------------------


async def test_vectors_come_in_order_as_numbers_and_as_base64(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway)
    inputs = ["one", "two and a half", "three"]
    by_default = await sdk.embeddings.create(model="all", input=inputs)  # the SDK asks for base64 then
    assert behind.all.last.json["encoding_format"] == "base64"
    assert behind.all.last.json["model"] == "scripted-all"
    assert [row.embedding for row in by_default.data] == [vector(given) for given in inputs]
    assert [row.index for row in by_default.data] == [0, 1, 2]
    floats = await sdk.embeddings.create(model="all", input=inputs[0], encoding_format="float", dimensions=3)
    assert floats.data[0].embedding == vector("one", 3)
    key = await gateway.key("open")
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        body = {"model": "all", "input": "one", "encoding_format": "base64"}
        answer = await http.post(f"{gateway.base}/v1/embeddings", json=body)
    packed = answer.json()["data"][0]["embedding"]
    assert list(struct.unpack("<8f", base64.b64decode(packed))) == vector("one")
    rows = [await row(gateway, exchange) for exchange in behind.all.exchanges]
    assert [(one["input_tokens"], one["output_tokens"]) for one in rows] == [(6, 0), (1, 0), (1, 0)]
    assert [one["cost_pico"] for one in rows] == [6_000_000, 1_000_000, 1_000_000]


async def test_geminis_clients_get_vectors_in_googles_form(gateway: GatewayProcess, behind: Behind) -> None:
    place, headers = f"{gateway.base}/v1beta/models/all", {"x-goog-api-key": await gateway.key("open")}
    contents = [{"parts": [{"text": "one"}]}, {"parts": [{"text": "two"}, {"text": "lines"}]}]
    batch = {"requests": [{"model": "models/all", "content": each, "outputDimensionality": 3} for each in contents]}
    async with httpx.AsyncClient(timeout=30, headers=headers) as http:
        one = await http.post(f"{place}:embedContent", json={"content": contents[0], "taskType": "RETRIEVAL_QUERY"})
        assert one.json() == {"embedding": {"values": vector("one")}}
        several = await http.post(f"{place}:batchEmbedContents", json=batch)
        assert several.json() == {"embeddings": [{"values": vector("one", 3)}, {"values": vector("two\nlines", 3)}]}
        image = {"parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}
        batch["requests"][1]["outputDimensionality"] = 4
        refused = [
            (":embedContent", {"content": image}, "content.parts"),
            (":embedContent", {"content": contents[0], "outputDimensionality": 0}, "outputDimensionality"),
            (":batchEmbedContents", {"requests": []}, "requests"),
            (":batchEmbedContents", batch, "outputDimensionality"),
        ]
        for method, body, field in refused:
            answer = await http.post(place + method, json=body)
            assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
            assert field in answer.json()["error"]["message"]


async def test_a_key_in_the_address_opens_googles_paths_alone(gateway: GatewayProcess, behind: Behind) -> None:
    key = await gateway.key("open")
    message = {"role": "user", "content": "hi"}
    chat = {"model": "all", "messages": [message]}
    parts = {"parts": [{"text": "hi"}]}
    google = {"contents": [parts]}
    place = "/v1beta/models/all"
    asked = [
        (f"{place}:generateContent?key={key}", google, 200),
        (f"{place}:streamGenerateContent?alt=sse&key={key}", google, 200),
        (f"{place}:embedContent?key={key}", {"content": parts}, 200),
        (f"{place}:countTokens?key={key}", google, 200),
        (f"{place}:countTokens?key=tg-unknown", google, 401),
        (f"{place}:generateContent?key=tg-unknown", google, 401),
        (f"{place}:generateContent?key=", google, 401),
        (f"/v1/chat/completions?key={key}", chat, 401),
    ]
    async with httpx.AsyncClient(timeout=30, base_url=gateway.base) as http:
        for path, body, status in asked:
            answer = await http.post(path, json=body)
            assert answer.status_code == status, answer.text
    assert all(key not in f"{each.path} {each.headers}" for each in behind.all.exchanges)


async def test_tokens_are_vectors_input_too_and_many_inputs_need_no_common_window(
    gateway: GatewayProcess, behind: Behind
) -> None:
    sdk = await opened(gateway)
    found = await sdk.embeddings.create(model="all", input=[[1, 2, 3], [4]], encoding_format="float")
    assert [row.embedding for row in found.data] == [vector([1, 2, 3]), vector([4])]
    one = await sdk.embeddings.create(model="all", input=[7, 8], encoding_format="float")
    assert [row.embedding for row in one.data] == [vector([7, 8])]
    await sdk.embeddings.create(model="all", input=["some words of text"] * 400)  # the window holds 400 tokens
    behind.all.script(Reply(usage="absent"))
    await sdk.embeddings.create(model="all", input=[[5] * 30, [6] * 12])
    rows = [await row(gateway, exchange) for exchange in behind.all.exchanges]
    assert [(one["input_tokens"], one["output_tokens"]) for one in rows] == [(4, 0), (2, 0), (1600, 0), (42, 0)]
    assert [bool(one["estimated"]) for one in rows] == [False, False, False, True]


async def test_no_choice_is_made_among_models_whose_vectors_do_not_mix(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway)
    for name in ("mine", "one", "scripted-all"):
        assert (await sdk.embeddings.create(model=name, input="x")).data
    for name in ("auto", "several"):
        with pytest.raises(openai.BadRequestError) as caught:
            await sdk.embeddings.create(model=name, input="x")
        assert caught.value.param == "model"
    with pytest.raises(openai.NotFoundError) as unknown:
        await sdk.embeddings.create(model="nobody", input="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.APIStatusError) as never:
        await sdk.embeddings.create(model="claude", input="x")
    assert never.value.status_code == 400
    assert len(behind.claude.exchanges) == 0


async def test_the_same_text_is_embedded_once(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway, "cached")
    text = unique("the same")
    first = await sdk.embeddings.create(model="all", input=text)
    raw = await sdk.embeddings.with_raw_response.create(model="all", input=text)
    assert raw.headers["x-thriftgate-cache"] == "exact"
    assert raw.parse().data[0].embedding == first.data[0].embedding
    other = await sdk.embeddings.create(model="all", input=text, dimensions=4)
    assert len(other.data[0].embedding) == 4
    assert len(behind.all.exchanges) == 2


# -- passed through ----------------------------------------------------------------------------------------------------


async def test_speech_is_sound_byte_for_byte(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway)
    raw = await sdk.audio.speech.with_raw_response.create(model="all", voice="alloy", input="say this aloud")
    assert (raw.content, raw.headers["content-type"]) == (SOUND, "audio/mpeg")
    assert (raw.headers["x-thriftgate-backend"], raw.headers["x-thriftgate-cache"]) == ("all", "off")
    assert behind.all.last.json == {"model": "scripted-all", "voice": "alloy", "input": "say this aloud"}
    outcome, counted, output = await billed(gateway, behind.all.last)
    assert outcome == "ok"
    assert 3 <= counted <= 6
    assert output == 400  # no usage came: the most that fits the backend's window


async def test_a_transcription_passes_its_form_but_for_the_model(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway)
    file = ("a b.mp3", SOUND, "audio/mpeg")
    found = await sdk.audio.transcriptions.create(model="all", file=file, prompt="names", temperature=0)
    assert found.text == f"You sent {len(SOUND)} bytes as a b.mp3"
    sent = behind.all.last.json
    assert (sent["model"], sent["prompt"], sent["file"]["bytes"]) == ("scripted-all", "names", SOUND)
    text = await sdk.audio.transcriptions.create(model="all", file=file, response_format="text")
    assert text == found.text + "\n"
    await sdk.audio.transcriptions.create(model="all", file=file, response_format="verbose_json")
    rows = [await row(gateway, exchange) for exchange in behind.all.exchanges]
    assert [bool(one["estimated"]) for one in rows] == [False, True, True]
    assert rows[0]["input_tokens"] == len(SOUND)


async def test_pictures_come_and_their_usage_is_billed(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway)
    found = await sdk.images.generate(model="all", prompt="a small square", n=2)
    assert found.data is not None
    assert [base64.b64decode(one.b64_json or "") for one in found.data] == [PNG, PNG]
    found_row = await row(gateway, behind.all.last)
    assert (found_row["input_tokens"], found_row["output_tokens"]) == (3, 200)
    assert found_row["cost_pico"] == 3_000_000 + 400_000_000


async def test_moderations_and_rerank_answer(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway)
    found = await sdk.moderations.create(model="all", input=["be kind", "I will kill it"])
    assert [one.flagged for one in found.results] == [False, True]
    ranked = await sdk.post(
        "/rerank", body={"model": "all", "query": "red fox", "documents": ["blue", "a red fox"]}, cast_to=httpx.Response
    )
    assert [one["index"] for one in ranked.json()["results"]] == [1, 0]
    assert [(await billed(gateway, one))[0] for one in behind.all.exchanges] == ["ok", "ok"]
    assert await billed(gateway, behind.all.last) == ("ok", 6, 0)


async def test_a_transcript_streams_and_its_end_waits_for_the_books(gateway: GatewayProcess, behind: Behind) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    delta = b'data: {"type":"transcript.text.delta","delta":"hel"}\n\n'
    usage = b'{"type":"tokens","input_tokens":9,"output_tokens":2,"total_tokens":11}'
    done = b'data: {"type":"transcript.text.done","text":"hello","usage":%b}\n\n' % usage
    behind.all.script(
        Raw((head, b"%x\r\n%b\r\n" % (len(delta), delta), 0.05, b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done)))
    )
    sdk = await opened(gateway)
    stream = await sdk.audio.transcriptions.create(model="all", file=("a.mp3", SOUND), stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert await billed(gateway, behind.all.last) == ("ok", 9, 2)


async def test_who_asked_for_a_stream_and_got_none_is_told_so_by_the_content_type(
    gateway: GatewayProcess, behind: Behind
) -> None:
    key = await gateway.key("open")
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        answer = await http.post(
            f"{gateway.base}/v1/audio/transcriptions",
            data={"model": "all", "stream": "true"},
            files={"file": ("a.mp3", SOUND)},
        )
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["text"].startswith("You sent")
    assert (await billed(gateway, behind.all.last))[0] == "ok"


async def test_sound_that_breaks_off_breaks_the_connection(gateway: GatewayProcess, behind: Behind) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 1000\r\n\r\n"
    behind.all.script(Raw((head, SOUND[:100], 0.05), then="fin"))
    sdk = await opened(gateway)
    with pytest.raises((openai.APIConnectionError, httpx.RemoteProtocolError)):
        await sdk.audio.speech.create(model="all", voice="alloy", input="x")
    assert (await billed(gateway, behind.all.last))[0] == "interrupted"


async def test_what_the_policy_does_not_open_is_not_there(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway, "cached")
    await sdk.audio.speech.create(model="all", voice="alloy", input="x")
    with pytest.raises(openai.NotFoundError, match=r"passthrough: \[moderations\]") as caught:
        await sdk.moderations.create(model="all", input="x")
    assert caught.value.code == "not_found"
    with pytest.raises(openai.AuthenticationError):
        await client(gateway, "tg-nobody").moderations.create(model="all", input="x")
    assert len(behind.all.exchanges) == 1


async def test_a_refusal_is_the_backends_own_and_a_missing_endpoint_does_not_rest_it(
    gateway: GatewayProcess, behind: Behind
) -> None:
    sdk = await opened(gateway)
    behind.all.script(Fail(400, "Invalid file format.", code="invalid_value", param="file"))
    with pytest.raises(openai.BadRequestError, match="Invalid file format") as caught:
        await sdk.audio.transcriptions.create(model="all", file=("a.txt", b"no sound"))
    assert caught.value.param == "file"
    for _ in range(8):
        with pytest.raises(openai.APIStatusError, match="no endpoint /moderations"):
            await sdk.moderations.create(model="chat", input="x")
    found = await sdk.chat.completions.create(model="chat", messages=[{"role": "user", "content": "still there?"}])
    assert found.choices[0].message.content


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", b'{"model": "all", "prompt": NaN}'),
        ("/v1/completions", b'{"model": "all"}'),
        ("/v1/embeddings", b'{"model": "all", "input": {"a": 1}}'),
        ("/v1/embeddings", b'"\\ud800"'),
        ("/v1/moderations", b'{"input": "no model"}'),
        ("/v1/audio/speech", b"\xff\x00"),
    ],
)
async def test_bad_input_is_a_400_in_shape(gateway: GatewayProcess, behind: Behind, path: str, body: bytes) -> None:
    key = await gateway.key("open")
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with httpx.AsyncClient(timeout=30, headers=headers) as http:
        for form in (path, path.removeprefix("/v1")):
            answer = await http.post(f"{gateway.base}{form}", content=body)
            assert answer.status_code == 400, answer.text
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_one_model_is_found_and_an_unknown_one_is_not(gateway: GatewayProcess, behind: Behind) -> None:
    sdk = await opened(gateway)
    assert (await sdk.models.retrieve("mine")).id == "mine"
    with pytest.raises(openai.NotFoundError) as caught:
        await sdk.models.retrieve("nobody")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
