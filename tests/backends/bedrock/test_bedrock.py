"""Kind `bedrock` against a server that checks every signature with botocore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr, ValidationError

from gateway.backends.fleet import Fleet
from gateway.backends.providers.bedrock.answers import named_in, refused
from gateway.backends.providers.bedrock.credentials import CredentialChain
from gateway.backends.providers.bedrock.provider import Bedrock as BedrockProvider
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest
from gateway.errors import AllBackendsFailed, BackendRefused, StreamBroken
from tests.fakes.bedrock import CLAUDES, CONVERSED, MODELS, NOVAS, Bedrock, refuse, throttled
from tests.fakes.caller import Caller, read
from tests.fakes.event_stream import event
from tests.fakes.scripted import Body, Pieces, Refuse
from tests.support.requests import chat_request, messages_request, responses_request

CLAUDE, NOVA = MODELS


@pytest.fixture
async def bedrock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Bedrock]:
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with Bedrock() as server:
        yield server


def at(bedrock: Bedrock, **changes: Any) -> Backend:
    fields = {"name": "aws", "kind": "bedrock", "base_url": bedrock.url, "region": "eu-central-1", "model": CLAUDE}
    return Backend.model_validate(fields | changes)


@pytest.fixture
async def ask(bedrock: Bedrock) -> AsyncIterator[Any]:
    """Call one backend; returns the answer and its bytes."""
    fleets = []

    async def call(
        request: CompletionRequest, chain: CredentialChain | None = None, **changes: Any
    ) -> tuple[Any, bytes]:
        fleet = Fleet([at(bedrock, **changes)], kinds={"bedrock": lambda backend: BedrockProvider(backend, chain)})
        fleets.append(fleet)
        answer = await Caller(fleet).call(request)
        return answer, await read(answer)

    yield call
    for fleet in fleets:
        await fleet.aclose()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("client", [chat_request, messages_request, responses_request])
async def test_every_client_is_answered_by_every_model(
    bedrock: Bedrock, ask: Any, client: Any, model: str, stream: bool
) -> None:
    answer, data = await ask(client(stream=stream), model=model)
    assert b"Claude" in data if model == CLAUDE else b"Nova" in data
    assert answer.attempt.usage == Usage(input_tokens=9, cached_tokens=5, output_tokens=4)
    operations = ("invoke", "invoke-with-response-stream") if model == CLAUDE else ("converse", "converse-stream")
    assert (bedrock.asked[-1].model, bedrock.asked[-1].operation) == (model, operations[stream])
    assert not bedrock.refused


async def test_an_inference_profile_and_an_arn_are_one_part_of_the_path(bedrock: Bedrock, ask: Any) -> None:
    arn = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/a1-claude"
    with pytest.raises(BackendRefused, match="model identifier is invalid"):
        await ask(chat_request(), model=arn)
    assert (bedrock.asked[-1].model, bedrock.refused) == (arn, [])


async def test_claudes_body_has_no_model_and_says_its_version_and_betas(bedrock: Bedrock, ask: Any) -> None:
    betas = b"interleaved-thinking-2025-05-14, claude-code-20250219"
    await ask(
        messages_request(
            stream=True, temperature=0.10, headers={b"anthropic-beta": betas, b"anthropic-version": b"2023-06-01"}
        )
    )
    asked = bedrock.asked[-1]
    assert asked.body == {
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": ["interleaved-thinking-2025-05-14"],
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.1,
    }
    assert not [name for name in asked.headers if name.lower().startswith("anthropic")]


async def test_a_bedrock_api_key_goes_as_bearer(bedrock: Bedrock, ask: Any) -> None:
    bedrock.bearer = "bedrock-api-key-1"
    await ask(chat_request(), api_key=SecretStr("bedrock-api-key-1"))
    with pytest.raises(AllBackendsFailed) as refused:
        await ask(chat_request(), api_key=SecretStr("wrong-key-9"))
    assert "wrong-key-9" not in str(refused.value)


async def test_credentials_that_were_replaced_are_found_while_it_runs(
    bedrock: Bedrock, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = CredentialChain("aws", None)
    await ask(chat_request(), chain)
    bedrock.keys = {"AKIANEW": ("other", "token-2")}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANEW")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-2")
    _, data = await ask(chat_request(stream=True), chain)
    assert b"Claude" in data
    assert len(bedrock.refused) == 1


@pytest.mark.parametrize(("model", "frames"), [(CLAUDE, CLAUDES), (NOVA, NOVAS)])
async def test_a_stream_outlives_its_credentials_and_the_next_call_has_the_new_ones(
    bedrock: Bedrock, monkeypatch: pytest.MonkeyPatch, model: str, frames: tuple[bytes, ...]
) -> None:
    chain = CredentialChain("aws", None)
    fleet = Fleet([at(bedrock, model=model)], kinds={"bedrock": lambda backend: BedrockProvider(backend, chain)})
    bedrock.script(Pieces(frames, every_s=0.03))
    try:
        answer = await Caller(fleet).call(chat_request(stream=True))
        bedrock.keys = {"AKIANEW": ("other", "token-2")}
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANEW")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token-2")
        async with asyncio.timeout(10):
            beside = await read(await Caller(fleet).call(chat_request()))
        assert b"Hello" in beside
        assert len(bedrock.refused) == 1
        assert b"[DONE]" in await read(answer)
    finally:
        await fleet.aclose()


async def test_wrong_credentials_are_the_operators_to_mend(bedrock: Bedrock, ask: Any) -> None:
    bedrock.keys = {}
    with pytest.raises(AllBackendsFailed) as refused:
        await ask(chat_request())
    assert refused.value.status == 502
    assert len(bedrock.refused) == 1, "the same signature is not sent twice"


@pytest.mark.parametrize("ahead_s", [-3600.0, 900.0])
async def test_a_wrong_clock_is_corrected_by_awss(bedrock: Bedrock, ask: Any, ahead_s: float) -> None:
    bedrock.ahead_s = ahead_s
    _, data = await ask(chat_request(stream=True))
    assert b"Claude" in data
    assert len(bedrock.refused) == 1


async def test_throttling_as_the_first_event_of_a_200_is_tried_again(bedrock: Bedrock, ask: Any) -> None:
    for model in MODELS:
        bedrock.script(Pieces((throttled(),)))
        _, data = await ask(chat_request(stream=True), model=model)
        assert b"[DONE]" in data


SPOKEN = Usage(input_tokens=9, cached_tokens=5, output_tokens=4)
MALFORMED = {
    **CONVERSED,
    "output": {"message": {"role": "assistant", "content": []}},
    "stopReason": "malformed_tool_use",
}
MALFORMED_END = (event("messageStop", {"stopReason": "malformed_tool_use"}), NOVAS[-1])
HM = event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", [chat_request, messages_request, responses_request])
async def test_a_malformed_call_is_asked_again_and_billed_once(bedrock: Bedrock, client: Any, stream: bool) -> None:
    async with aclosing(Fleet([at(bedrock, model=NOVA)])) as fleet:
        caller = Caller(fleet)
        bedrock.script(Pieces((NOVAS[0], *MALFORMED_END)) if stream else Body(MALFORMED))
        assert b"Nova" in await read(await caller.call(client(stream=stream)))
        failed, served = caller.record.attempts
        assert (failed.outcome, failed.error, failed.usage) == ("failed", "backend_failed", SPOKEN)
        assert served.usage == SPOKEN
        assert failed.id in caller.books.closed


@pytest.mark.parametrize("stream", [False, True])
async def test_the_next_backend_is_asked_after_two_malformed_calls(bedrock: Bedrock, stream: bool) -> None:
    async with aclosing(Fleet([at(bedrock, model=NOVA), at(bedrock, name="other")])) as fleet:
        caller = Caller(fleet)
        bedrock.script(*([Pieces((NOVAS[0], *MALFORMED_END)) if stream else Body(MALFORMED)] * 2))
        assert b"Claude" in await read(await caller.call(chat_request(stream=stream)))
        assert [(each.backend.name, each.usage) for each in caller.record.attempts] == [
            ("aws", SPOKEN), ("aws", SPOKEN), ("other", SPOKEN),
        ]  # fmt: skip


async def test_a_malformed_call_after_thoughts_breaks_the_stream_and_is_billed_as_reported(bedrock: Bedrock) -> None:
    async with aclosing(Fleet([at(bedrock, model=NOVA)])) as fleet:
        caller = Caller(fleet)
        bedrock.script(Pieces((NOVAS[0], HM, *MALFORMED_END)))
        answer = await caller.call(chat_request(stream=True))
        with pytest.raises(StreamBroken, match="malformed_tool_use"):
            await read(answer)
        await answer.aclose()
        assert caller.record.attempts[0].usage == SPOKEN


@pytest.mark.parametrize(("model", "frames"), [(CLAUDE, CLAUDES), (NOVA, NOVAS)])
async def test_throttling_in_the_middle_is_an_error_event_of_its_kind(
    bedrock: Bedrock, ask: Any, model: str, frames: tuple[bytes, ...]
) -> None:
    bedrock.script(Pieces((*frames[:3], throttled())))
    with pytest.raises(StreamBroken, match="Too many requests") as broken:
        await ask(chat_request(stream=True), model=model)
    assert (broken.value.kind, broken.value.status) == ("rate_limit_error", 429)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(("model", "frames"), [(CLAUDE, CLAUDES), (NOVA, NOVAS)])
@pytest.mark.parametrize("kept", [1, 11, 40, -1])
async def test_half_a_frame_breaks_the_stream(
    bedrock: Bedrock, ask: Any, model: str, frames: tuple[bytes, ...], kept: int, cut: bool
) -> None:
    bedrock.script(Pieces((*frames[:4], frames[4][:kept]), cut=cut))
    with pytest.raises(StreamBroken):
        await ask(chat_request(stream=True), model=model)


@pytest.mark.parametrize(("model", "frames"), [(CLAUDE, CLAUDES), (NOVA, NOVAS)])
async def test_a_stream_in_pieces_of_any_size_is_the_same(
    bedrock: Bedrock, ask: Any, model: str, frames: tuple[bytes, ...]
) -> None:
    _, expected = await ask(chat_request(stream=True), model=model)
    assert "".join(texts(expected)).startswith("Hello from")
    data = b"".join(frames)
    for size in (1, 7, 100):
        bedrock.script(Pieces(tuple(data[at : at + size] for at in range(0, len(data), size))))
        _, found = await ask(chat_request(stream=True), model=model)
        assert texts(found) == texts(expected)


async def test_a_stream_without_its_end_is_broken(bedrock: Bedrock, ask: Any) -> None:
    for model, frames in ((CLAUDE, CLAUDES), (NOVA, NOVAS)):
        bedrock.script(Pieces(frames[:-1]))
        with pytest.raises(StreamBroken):
            await ask(chat_request(stream=True), model=model)


@pytest.mark.parametrize(
    ("step", "error", "status"),
    [
        (refuse(400, "ValidationException", "messages: roles must alternate"), BackendRefused, 400),
        (refuse(400, "ValidationException", "Input is too long for requested model."), BackendRefused, 400),
        (refuse(403, "AccessDeniedException", "You don't have access to the model"), AllBackendsFailed, 502),
        (refuse(404, "ResourceNotFoundException", "Could not resolve the foundation model"), AllBackendsFailed, 502),
        (refuse(429, "ThrottlingException", "Too many tokens"), AllBackendsFailed, 429),
        (refuse(400, "ServiceQuotaExceededException", "Your quota"), AllBackendsFailed, 429),
        (refuse(408, "ModelTimeoutException"), AllBackendsFailed, 502),
        (refuse(424, "ModelErrorException"), AllBackendsFailed, 502),
        (refuse(503, "ServiceUnavailableException"), AllBackendsFailed, 503),
    ],
)
async def test_bedrocks_exceptions_are_what_they_mean(
    bedrock: Bedrock, ask: Any, step: Refuse, error: type[Exception], status: int
) -> None:
    for model in MODELS:
        bedrock.script(step, step, step)
        with pytest.raises(error) as caught:
            await ask(chat_request(), model=model)
        assert caught.value.status == status  # type: ignore[attr-defined]
        bedrock.steps.clear()


@pytest.mark.parametrize("field", ["__type", "code"])
async def test_a_wrong_clock_that_only_the_body_names_is_corrected(bedrock: Bedrock, ask: Any, field: str) -> None:
    bedrock.named_in, bedrock.ahead_s = field, 900.0
    _, data = await ask(chat_request())
    assert (b"Claude" in data, len(bedrock.refused)) == (True, 1)


async def test_too_long_has_openais_code(bedrock: Bedrock, ask: Any) -> None:
    bedrock.script(refuse(400, "ValidationException", "Input is too long for requested model."))
    with pytest.raises(BackendRefused) as caught:
        await ask(chat_request())
    assert caught.value.code == "context_length_exceeded"


def texts(data: bytes) -> list[str]:
    """The content of a chat stream's chunks."""
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: {")]
    choices = [choice for line in lines for choice in orjson.loads(line)["choices"]]
    return [choice["delta"].get("content") or "" for choice in choices]


WRONG = [
    ({"region": ""}, "needs region"),
    ({"region": "Europe"}, "needs region"),
    ({"kind": "openai", "aws_profile": "x"}, "aws_profile: only for kind bedrock"),
    ({"api_version": "2024-10-21"}, "api_version: only for kind azure"),
]


@pytest.mark.parametrize(("changes", "problem"), WRONG)
async def test_what_cannot_work_is_refused_at_start(bedrock: Bedrock, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        at(bedrock, **changes)


def test_the_address_follows_from_the_region() -> None:
    backend = Backend(name="b", kind="bedrock", region="us-west-2", model=NOVA)
    assert backend.base_url == "https://bedrock-runtime.us-west-2.amazonaws.com"
    assert (backend.hosted, backend.provider_name, backend.spoken) == (True, "aws.bedrock", ("bedrock_converse",))
    assert Backend(name="b", kind="bedrock", region="us-west-2", model=CLAUDE).spoken == ("anthropic_messages",)


@pytest.mark.parametrize("body", [b'{"__type":"com.amazon#ThrottlingException"}', b'{"code":"ThrottlingException"}'])
def test_an_exception_is_also_named_in_the_body(body: bytes) -> None:
    assert refused(400, named_in(body), body, []).status == 429


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"__type":1}', b"{}"])
def test_a_body_without_a_name_names_no_exception(body: bytes) -> None:
    assert named_in(body) == ""
