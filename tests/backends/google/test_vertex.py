"""Kinds `vertex` and `gemini` against a server that checks tokens, keys, addresses and bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import orjson
import pytest
from pydantic import SecretStr, ValidationError

from gateway.backends.fleet import Fleet
from gateway.backends.providers.vertex.provider import Vertex
from gateway.backends.providers.vertex.tokens import Tokens
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest
from gateway.errors import AllBackendsFailed, BackendRefused, StreamBroken
from tests.fakes.caller import Caller, read
from tests.fakes.google import (
    CLAUDE,
    CLAUDES,
    EVENTS,
    GEMINI,
    KEY,
    LOCATION,
    PROJECT,
    Google,
    event,
    part,
)
from tests.fakes.scripted import Body, Pieces, Refuse
from tests.support.requests import (
    chat_request,
    completions_request,
    messages_request,
    request_in,
    responses_request,
)

SPOKEN = Usage(input_tokens=9, cached_tokens=5, output_tokens=4, reasoning_tokens=3)
PLACE = f"/v1/projects/{PROJECT}/locations/{LOCATION}/publishers"


@pytest.fixture
async def google() -> AsyncIterator[Google]:
    async with Google() as server:
        yield server


def vertex(google: Google, **changes: Any) -> Backend:
    place = {"base_url": google.url, "project": PROJECT, "region": LOCATION}
    return Backend.model_validate({"name": "vertex", "kind": "vertex", "model": GEMINI, **place, **changes})


def studio(google: Google, **changes: Any) -> Backend:
    fields = {"base_url": f"{google.url}/v1beta", "api_key": SecretStr(KEY), "model": GEMINI}
    return Backend.model_validate({"name": "gemini", "kind": "gemini", **fields, **changes})


@pytest.fixture
async def ask(google: Google) -> AsyncIterator[Any]:
    fleets = []

    async def call(request: CompletionRequest, backend: Backend) -> tuple[Any, bytes]:
        tokens = Tokens("vertex", None, metadata=google.url)
        kinds = {"vertex": lambda each: Vertex(each, tokens)}
        fleet = Fleet([backend], kinds=kinds) if backend.kind == "vertex" else Fleet([backend])
        fleets.append(fleet)
        answer = await Caller(fleet).call(request)
        return answer, await read(answer)

    yield call
    for fleet in fleets:
        await fleet.aclose()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", [chat_request, messages_request, responses_request, completions_request])
async def test_every_client_is_answered_by_gemini_at_both_addresses(
    google: Google, ask: Any, client: Any, stream: bool
) -> None:
    method = "streamGenerateContent" if stream else "generateContent"
    for backend, path in ((studio(google), "/v1beta"), (vertex(google), f"{PLACE}/google")):
        answer, data = await ask(client(stream=stream), backend)
        assert b"Gemini" in data
        assert answer.attempt.usage == SPOKEN
        asked = google.asked[-1]
        assert (asked.path, asked.query) == (f"{path}/models/{GEMINI}:{method}", "alt=sse" if stream else "")
        assert asked.body["contents"] == [{"role": "user", "parts": [{"text": "hello"}]}]


async def test_embeddings_have_googles_methods(google: Google, ask: Any) -> None:
    vectors = {"embeddings": [{"values": [0.5]}], "usageMetadata": {"promptTokenCount": 2}}
    counted = {"predictions": [{"embeddings": {"values": [0.5], "statistics": {"token_count": 2}}}]}
    alone = {"embedding": {"values": [0.5]}, "usageMetadata": {"promptTokenCount": 2}}
    old, new = "gemini-embedding-001", "gemini-embedding-2"
    places = f"{PLACE}/google/models"
    for backend, path, reply in (
        (studio(google, model=old), f"/v1beta/models/{old}:batchEmbedContents", vectors),
        (vertex(google, model=old), f"{places}/{old}:predict", counted),
        (vertex(google, model=new), f"{places}/{new}:embedContent", alone),
    ):
        google.script(Body(reply))
        answer, data = await ask(request_in("openai_embeddings", input="hello", model="auto"), backend)
        assert (google.asked[-1].path, answer.attempt.usage) == (path, Usage(input_tokens=2))
        assert orjson.loads(data)["data"][0]["embedding"] == [0.5]
    several = request_in("openai_embeddings", input=["a", "b"], model="auto")
    with pytest.raises(BackendRefused, match="one text"):
        await ask(several, vertex(google, model=new))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", [chat_request, messages_request, responses_request, completions_request])
async def test_every_client_is_answered_by_claude_in_vertex(
    google: Google, ask: Any, client: Any, stream: bool
) -> None:
    answer, data = await ask(client(stream=stream), vertex(google, model=CLAUDE))
    assert b"Claude" in data
    assert answer.attempt.usage == Usage(input_tokens=9, cached_tokens=5, output_tokens=4)
    asked = google.asked[-1]
    assert asked.path == f"{PLACE}/anthropic/models/{CLAUDE}:{'streamRawPredict' if stream else 'rawPredict'}"
    assert (asked.body["anthropic_version"], asked.body.get("stream", False)) == ("vertex-2023-10-16", stream)
    assert "model" not in asked.body


async def test_of_anthropics_headers_known_betas_alone_are_sent_on(google: Google, ask: Any) -> None:
    betas = b"claude-code-20250219,interleaved-thinking-2025-05-14"
    await ask(
        messages_request(headers={b"anthropic-beta": betas, b"anthropic-version": b"2023-06-01"}),
        vertex(google, model=CLAUDE),
    )
    sent = {name: value for name, value in google.asked[-1].headers.items() if name.startswith("anthropic")}
    assert sent == {"anthropic-beta": "interleaved-thinking-2025-05-14"}


async def test_an_api_key_works_at_vertex_too(google: Google, ask: Any) -> None:
    _, data = await ask(chat_request(), vertex(google, api_key=SecretStr(KEY)))
    assert b"Gemini" in data
    assert google.granted == []


async def test_a_token_that_google_no_longer_takes_is_replaced_and_the_call_sent_again(google: Google) -> None:
    tokens = Tokens("vertex", None, metadata=google.url)
    fleet = Fleet([vertex(google)], kinds={"vertex": lambda each: Vertex(each, tokens)})
    try:
        for stream in (False, True):
            google.tokens = set()
            assert b"Gemini" in await read(await Caller(fleet).call(chat_request(stream=stream)))
        assert google.granted == ["metadata"] * 2
        assert {asked.headers["authorization"] for asked in google.asked} == {
            "Bearer ya29.token-1",
            "Bearer ya29.token-2",
        }
    finally:
        await fleet.aclose()


async def test_a_stream_outlives_its_token_and_the_next_call_has_a_new_one(google: Google) -> None:
    tokens = Tokens("vertex", None, metadata=google.url)
    fleet = Fleet([vertex(google)], kinds={"vertex": lambda each: Vertex(each, tokens)})
    google.script(Pieces(EVENTS, every_s=0.05))
    try:
        answer = await Caller(fleet).call(chat_request(stream=True))
        google.tokens = set()
        assert b"Gemini" in await read(await Caller(fleet).call(chat_request()))
        assert google.granted == ["metadata"] * 2
        assert b"[DONE]" in await read(answer)
    finally:
        await fleet.aclose()


async def test_a_key_that_is_wrong_is_the_operators_to_mend(google: Google, ask: Any) -> None:
    wrong = {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}
    google.script(Refuse(400, {"error": wrong}))
    with pytest.raises(AllBackendsFailed, match="does not accept the gateway's key"):
        await ask(chat_request(), studio(google))
    with pytest.raises(AllBackendsFailed) as refused:
        await ask(chat_request(), studio(google, api_key=SecretStr("AIza-other")))
    assert "AIza-other" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (400, "Unsupported MIME type: audio/x", "backend_refused"),
        (
            400,
            "The input token count (2000000) exceeds the maximum number of tokens allowed",
            "context_length_exceeded",
        ),
        (403, "Gemini is not available in your country", "backend_refused"),
    ],
)
async def test_a_refusal_is_googles_own(google: Google, ask: Any, status: int, text: str, code: str) -> None:
    google.script(Refuse(status, {"error": {"code": status, "message": text, "status": "INVALID_ARGUMENT"}}))
    with pytest.raises(BackendRefused) as refused:
        await ask(chat_request(), studio(google))
    assert (refused.value.status, refused.value.message, refused.value.code) == (status, text, code)


LIMITED = {"error": {"code": 429, "message": "Resource has been exhausted", "status": "RESOURCE_EXHAUSTED"}}


async def test_throttling_as_the_first_event_of_a_200_is_tried_again(google: Google, ask: Any) -> None:
    google.script(Pieces((event(LIMITED),)))
    _, data = await ask(chat_request(stream=True), studio(google))
    assert b"[DONE]" in data


MALFORMED = part(finishReason="MALFORMED_FUNCTION_CALL")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_malformed_call_is_asked_again_and_billed_once(google: Google, stream: bool) -> None:
    async with aclosing(Fleet([studio(google)])) as fleet:
        caller = Caller(fleet)
        google.script(Pieces((event(MALFORMED),)) if stream else Body(MALFORMED))
        assert b"Hello" in await read(await caller.call(chat_request(stream=stream)))
        failed, served = caller.record.attempts
        assert (failed.outcome, failed.error, failed.usage) == ("failed", "backend_failed", SPOKEN)
        assert served.usage == SPOKEN
        assert failed.id in caller.books.closed


async def test_tokens_that_are_reported_after_a_malformed_call_are_billed(google: Google) -> None:
    unreported = {name: value for name, value in MALFORMED.items() if name != "usageMetadata"}
    reported = {"usageMetadata": MALFORMED["usageMetadata"]}
    async with aclosing(Fleet([studio(google)])) as fleet:
        caller = Caller(fleet)
        google.script(Pieces((event(unreported) + event(reported),)))
        assert b"Hello" in await read(await caller.call(chat_request(stream=True)))
        assert caller.record.attempts[0].usage == SPOKEN


@pytest.mark.parametrize("stream", [False, True])
async def test_malformed_calls_of_one_client_do_not_open_the_breaker(google: Google, stream: bool) -> None:
    async with aclosing(Fleet([studio(google)])) as fleet:
        for _ in range(4):
            google.script(*([Pieces((event(MALFORMED),)) if stream else Body(MALFORMED)] * 2))
            with pytest.raises(AllBackendsFailed):
                await Caller(fleet).call(chat_request(stream=stream))
        await read(await Caller(fleet).call(chat_request(stream=stream)))


async def test_a_malformed_call_after_thoughts_breaks_the_stream_and_is_billed_as_reported(google: Google) -> None:
    async with aclosing(Fleet([studio(google)])) as fleet:
        caller = Caller(fleet)
        google.script(Pieces((event(part({"text": "hm", "thought": True})), event(MALFORMED))))
        answer = await caller.call(chat_request(stream=True))
        with pytest.raises(StreamBroken, match="MALFORMED_FUNCTION_CALL"):
            await read(answer)
        await answer.aclose()
        assert caller.record.attempts[0].usage == SPOKEN


@pytest.mark.parametrize("shape", [LIMITED, [LIMITED]])
async def test_throttling_in_the_middle_is_an_error_of_its_kind(google: Google, ask: Any, shape: Any) -> None:
    google.script(Pieces((*EVENTS[:2], event(shape))))
    with pytest.raises(StreamBroken, match="exhausted") as broken:
        await ask(chat_request(stream=True), studio(google))
    assert (broken.value.kind, broken.value.status) == ("rate_limit_error", 429)


@pytest.mark.parametrize("cut", [False, True])
async def test_a_stream_without_its_end_is_broken(google: Google, ask: Any, cut: bool) -> None:
    for pieces in (EVENTS[:2], (*EVENTS[:2], EVENTS[2][:30])):
        google.script(Pieces(pieces, cut=cut))
        with pytest.raises(StreamBroken):
            await ask(chat_request(stream=True), studio(google))
    google.script(Pieces(CLAUDES[:-1], cut=cut))
    with pytest.raises(StreamBroken):
        await ask(chat_request(stream=True), vertex(google, model=CLAUDE))


async def test_a_stream_that_is_cut_after_its_finish_reason_is_broken(google: Google, ask: Any) -> None:
    google.script(Pieces(EVENTS, cut=True))
    with pytest.raises(StreamBroken):
        await ask(chat_request(stream=True), studio(google))


async def test_a_stream_in_pieces_of_any_size_is_the_same(google: Google, ask: Any) -> None:
    data = b"".join(EVENTS)
    for size in (1, 7, 100):
        google.script(Pieces(tuple(data[at : at + size] for at in range(0, len(data), size))))
        answer, found = await ask(chat_request(stream=True), studio(google))
        assert found.endswith(b"data: [DONE]\n\n")
        assert orjson.loads(answer.completion())["choices"][0]["message"]["content"] == "Hello from Gemini"


WRONG = [
    ({"project": None}, "needs project"),
    ({"region": ""}, "needs project, and region"),
    ({"region": "europe-west4/x"}, "needs project, and region"),
    ({"project": "a/b"}, "project"),
    ({"google_credentials": "env:X"}, "google_credentials"),
    ({"kind": "openai"}, "only for kind vertex"),
]


@pytest.mark.parametrize(("changes", "problem"), WRONG)
async def test_what_cannot_work_is_refused_at_start(google: Google, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        vertex(google, **changes)


def test_the_address_follows_from_the_location() -> None:
    backend = Backend(name="b", kind="vertex", project="p", region="europe-west4", model=GEMINI)
    assert backend.base_url == "https://europe-west4-aiplatform.googleapis.com"
    assert (backend.hosted, backend.provider_name, backend.spoken) == (True, "gcp.vertex_ai", ("gemini_generate",))
    everywhere = Backend(name="b", kind="vertex", project="p", region="global", model=CLAUDE)
    assert (everywhere.base_url, everywhere.spoken) == ("https://aiplatform.googleapis.com", ("anthropic_messages",))
