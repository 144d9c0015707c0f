from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from gateway.backends.fleet import KINDS, Fleet
from gateway.backends.providers.litellm import provider
from gateway.backends.providers.litellm.calls import words
from gateway.backends.providers.litellm.process import Supervised, command, listen, remove
from gateway.domain.backend import Backend
from gateway.errors import AllBackendsFailed, BackendRefused, StreamBroken
from tests.backends.conftest import KEY
from tests.fakes.caller import Caller, read
from tests.fakes.gemini import Gemini
from tests.fakes.provider import Provider, Raw
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request
from tests.support.waiting import until

extras = pytest.mark.extras
VENDORS = "sk-key-of-a-vendor-in-the-environment"


def backend(url: str, **changes: Any) -> Backend:
    return Backend(
        **{
            "name": "gemini",
            "kind": "litellm",
            "base_url": url,
            "api_key": SecretStr(KEY),
            "model": "gemini/gemini-2.5-flash",
            **changes,
        }
    )


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where litellm's process listens."""
    listener = listen(tmp_path_factory.mktemp("l") / "litellm.sock")
    keys = dict.fromkeys(("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY", "HOSTED_VLLM_API_KEY"), VENDORS)
    process = subprocess.Popen(
        command(listener), pass_fds=[listener.fileno()], cwd=Path(__file__).parents[2], env=os.environ | keys
    )
    yield str(listener.getsockname())
    process.terminate()
    process.wait(timeout=15)
    remove(listener)


def fleet_of(socket_path: str, *backends: Backend) -> Fleet:
    return Fleet(backends, kinds={**KINDS, "litellm": partial(provider.ViaLitellm, process=Supervised(socket_path))})


@pytest.fixture
async def gemini() -> AsyncIterator[Gemini]:
    async with Gemini() as server:
        yield server


@pytest.fixture
async def caller(gemini: Gemini, socket_path: str) -> AsyncIterator[Caller]:
    fleet = fleet_of(socket_path, backend(gemini.url, first_byte_timeout=60))
    await fleet.open()
    yield Caller(fleet)
    await fleet.aclose()


@extras
async def test_a_plain_answer_comes_back_in_the_clients_dialect(gemini: Gemini, caller: Caller) -> None:
    answer = await caller.call(chat_request("hi", temperature=0.2, max_tokens=9))
    body = orjson.loads(await read(answer))
    assert body["choices"][0]["message"]["content"] == "Hello from Gemini"
    assert body["object"] == "chat.completion"
    assert body.keys() <= {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}
    assert (answer.complete, answer.finish) == (True, "stop")
    assert answer.attempt is not None
    assert answer.attempt.usage is not None
    assert (answer.attempt.usage.all_input, answer.attempt.usage.all_output) == (5, 3)
    sent = gemini.bodies[-1]
    assert sent["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert sent["generationConfig"] == {"temperature": 0.2, "max_output_tokens": 9}
    assert gemini.headers[-1]["x-goog-api-key"] == KEY


@extras
@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m", "gemini/gemini-2.5-flash"])
async def test_the_vendors_key_of_the_environment_goes_to_no_other_address(
    small: Provider, gemini: Gemini, socket_path: str, model: str
) -> None:
    own = gemini.url if model.startswith("gemini/") else small.url
    fleet = fleet_of(socket_path, backend(own, model=model, api_key=None, first_byte_timeout=60))
    await fleet.open()
    await read(await Caller(fleet).call(chat_request("hi")))
    await fleet.aclose()
    sent = str(gemini.headers[-1]) if model.startswith("gemini/") else str(small.last.headers)
    assert VENDORS not in sent
    assert "none" in sent


@extras
async def test_a_stream_comes_back_as_events_without_the_usage_that_nobody_asked_for(caller: Caller) -> None:
    answer = await caller.call(chat_request("hi", stream=True))
    data = await read(answer)
    assert data.endswith(b"data: [DONE]\n\n")
    assert b'"usage"' not in data
    assert b"vertex" not in data
    assert answer.delivered_text() == "Hello from Gemini"
    assert (answer.complete, answer.finish) == (True, "stop")
    assert answer.attempt is not None
    assert answer.attempt.usage is not None
    assert (answer.attempt.usage.all_input, answer.attempt.usage.all_output) == (5, 3)


@extras
async def test_a_usage_that_was_asked_for_comes_in_a_chunk_of_its_own(caller: Caller) -> None:
    answer = await caller.call(chat_request("hi", stream=True, stream_options={"include_usage": True}))
    events = [orjson.loads(event[6:]) for event in (await read(answer)).split(b"\n\n") if event.startswith(b"data: {")]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 3
    assert "cost" not in events[-1]["usage"]


@extras
async def test_an_end_that_the_provider_never_said_is_not_invented(small: Provider, socket_path: str) -> None:
    said = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hola"}}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(said)
    small.script(Raw((head + said,)))
    fleet = fleet_of(socket_path, backend(small.url, model="hosted_vllm/m"))
    await fleet.open()
    answer = await Caller(fleet).call(chat_request("hi", stream=True))
    pieces: list[bytes] = []

    async def listen() -> None:
        async for piece in pieces_of(answer):
            pieces.append(piece)  # noqa: PERF401 - what came before it broke counts

    with pytest.raises(StreamBroken, match="broke off in the middle"):
        await listen()
    await answer.aclose()
    await fleet.aclose()
    relayed = b"".join(pieces)
    assert b"Hola" in relayed
    assert b'"finish_reason":"' not in relayed
    assert b"[DONE]" not in relayed


@extras
@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_offered(gemini: Gemini, caller: Caller, stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
    assert b"Hello" in await read(await caller.call(chat_request("hi", stream=stream, tools=[tool])))
    assert b"search" in orjson.dumps(gemini.bodies[-1]["tools"])


@extras
async def test_a_client_that_hangs_up_closes_the_providers_connection(gemini: Gemini, caller: Caller) -> None:
    answer = await caller.call(chat_request("drip", stream=True))
    async for _ in pieces_of(answer):
        break
    await answer.aclose()
    await until(lambda: gemini.hung_up)


@extras
@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_call_closes_the_providers_connection(gemini: Gemini, caller: Caller, stream: bool) -> None:
    calling = asyncio.get_running_loop().create_task(caller.call(chat_request("slow", stream=stream)))
    await until(lambda: gemini.bodies)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(lambda: gemini.hung_up)
    assert list(caller.books.closed.values()) == ["interrupted"]


@extras
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_keeps_the_providers_words_and_none_of_litellms(caller: Caller, stream: bool) -> None:
    with pytest.raises(BackendRefused) as caught:
        await caller.call(chat_request("fail 400", stream=stream))
    assert (caught.value.status, caught.value.message) == (400, "scripted 400")


@extras
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "ends"), [(429, 429), (500, 502), (503, 503), (401, 502)])
async def test_failures_are_what_they_are(caller: Caller, status: int, ends: int, stream: bool) -> None:
    with pytest.raises(AllBackendsFailed) as caught:
        await caller.call(chat_request(f"fail {status}", stream=stream))
    assert caught.value.status == ends
    assert "<" not in caught.value.message
    assert KEY not in caught.value.message
    assert caller.record.attempts[0].status == status


@extras
async def test_an_answer_that_does_not_begin_is_given_up(gemini: Gemini, caller: Caller, socket_path: str) -> None:
    await read(await caller.call(chat_request("hi")))  # the process runs
    fleet = fleet_of(socket_path, backend(gemini.url, first_byte_timeout=0.2))
    await fleet.open()
    caller = Caller(fleet)
    for stream in (False, True):
        with pytest.raises(AllBackendsFailed):
            await caller.call(chat_request("slow", stream=stream))
        assert caller.record.attempts[0].error == "backend_timeout"
    await fleet.aclose()


@extras
async def test_a_provider_out_of_reach_is_unreachable(socket_path: str) -> None:
    fleet = fleet_of(socket_path, backend("http://127.0.0.1:1"))
    await fleet.open()
    caller = Caller(fleet)
    with pytest.raises(AllBackendsFailed):
        await caller.call(chat_request())
    assert caller.record.attempts[0].error == "backend_unreachable"
    await fleet.aclose()


@extras
async def test_a_request_cannot_redirect_litellm_or_hand_it_callbacks(gemini: Gemini, caller: Caller) -> None:
    await read(
        await caller.call(
            chat_request(
                "hi",
                api_base="http://127.0.0.1:1",
                base_url="http://127.0.0.1:1",
                api_key="sk-other",
                mock_response="not the model",
                custom_llm_provider="openai",
                extra_headers={"x-evil": "1"},
                fallbacks=["gpt-4o"],
                success_callback=["evil"],
            )
        )
    )
    assert gemini.headers[-1]["x-goog-api-key"] == KEY
    assert "x-evil" not in gemini.headers[-1]


async def test_without_litellm_only_this_backend_fails_and_it_is_not_tried_twice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(provider, "find_spec", lambda _: None)  # as if it were not installed
    fleet = Fleet([backend("")])
    await fleet.open()
    assert "pip install" in caplog.text
    caller = Caller(fleet)
    with pytest.raises(AllBackendsFailed, match="needs litellm"):
        await caller.call(chat_request())
    assert len(caller.record.attempts) == 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('litellm.BadRequestError: GeminiException BadRequestError - {"error": {"message": "too hot"}}', "too hot"),
        ('litellm.BadRequestError: Vertex_ai_betaException BadRequestError - b\'{"error": {"message": "no"}}\'', "no"),
        ('litellm.BadRequestError: CohereException - {"message": "invalid"}', "invalid"),
        ("litellm.UnsupportedParamsError: gemini does not support seed", "gemini does not support seed"),
        ("litellm.APIError: <html>oh</html>", ""),
        ("litellm.APIError: {not json}", "{not json}"),
        ("litellm.APIError: Traceback (most recent call last)", ""),
    ],
)
def test_the_providers_words_are_found_in_litellms_frame(message: str, expected: str) -> None:
    assert words(message) == expected
