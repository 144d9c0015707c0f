"""The scripted provider's endpoints beside chat answer as OpenAI's own client expects them."""

from __future__ import annotations

import base64
import struct
from typing import Any

import aiohttp
import openai
import pytest

from gateway.domain.money.usage import Usage
from tests.fakes.provider import Fail, Provider, Reply
from tests.fakes.provider_rest import PNG, SOUND, vector


def loose(client: openai.AsyncOpenAI) -> openai.AsyncOpenAI:
    """For where its own types are too strict for what it asks for: base64 vectors, chunks not finished yet."""
    return client.copy(_extra_kwargs={"_strict_response_validation": False})


async def test_embeddings_keep_their_order_and_their_encoding(provider: Provider, client: openai.AsyncOpenAI) -> None:
    texts = await client.embeddings.create(model="e", input=["one", "two words"], encoding_format="float")
    assert [row.embedding for row in texts.data] == [vector("one"), vector("two words")]
    assert texts.usage.prompt_tokens == 3
    tokens = await loose(client).embeddings.create(model="e", input=[[1, 2], [3]], dimensions=3)
    assert [row.embedding for row in tokens.data] == [vector([1, 2], 3), vector([3], 3)]
    assert provider.last.json["encoding_format"] == "base64"
    assert provider.last.usage == Usage(input_tokens=3)
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            provider.url + "/embeddings", json={"model": "e", "input": [7], "encoding_format": "base64"}
        ) as answer,
    ):
        (row,) = (await answer.json())["data"]
    assert list(struct.unpack("<8f", base64.b64decode(row["embedding"]))) == vector([7])
    with pytest.raises(openai.BadRequestError, match="may not be empty"):
        await client.embeddings.create(model="e", input=["a", ""])


async def test_several_prompts_are_completed_in_order(provider: Provider, client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="m", prompt=["one", "two"], n=2, echo=True, logprobs=0)
    assert [choice.text for choice in answer.choices] == [
        *("oneYou said: one", "oneYou said: one"),
        *("twoYou said: two", "twoYou said: two"),
    ]
    assert answer.choices[0].logprobs
    assert answer.choices[0].logprobs.text_offset == [0, 3, 9]
    assert (answer.object, answer.usage and answer.usage.prompt_tokens) == ("text_completion", 2)
    short = await client.completions.create(model="m", prompt=[5, 6], max_tokens=1)
    assert (short.choices[0].text, short.choices[0].finish_reason) == ("You", "length")


async def test_a_completion_streams_its_text_then_its_usage(provider: Provider, client: openai.AsyncOpenAI) -> None:
    chunks = [
        chunk
        async for chunk in await loose(client).completions.create(
            model="m", prompt="hi", stream=True, stream_options={"include_usage": True}
        )
    ]
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == "You said: hi"
    assert (chunks[-1].choices, chunks[-1].usage and chunks[-1].usage.completion_tokens) == ([], 3)
    assert provider.last.chunks_sent == 3
    provider.script(Reply(error_event="broke", after=1))
    with pytest.raises(openai.APIError, match="broke"):
        [chunk async for chunk in await loose(client).completions.create(model="m", prompt="hi", stream=True)]


async def test_moderation_flags_violence(client: openai.AsyncOpenAI) -> None:
    said = await client.moderations.create(input=["kill him", "hug him"])
    assert [one.flagged for one in said.results] == [True, False]


async def test_the_best_documents_come_first(provider: Provider) -> None:
    asked = {"model": "r", "query": "red cat", "documents": ["a dog", "a red cat", {"text": "red"}], "top_n": 2}
    async with aiohttp.ClientSession() as session, session.post(provider.url + "/rerank", json=asked) as answer:
        said = await answer.json()
    assert [row["index"] for row in said["results"]] == [1, 2]
    assert said["usage"]["total_tokens"] == 8


async def test_speech_is_bytes_that_are_no_text(client: openai.AsyncOpenAI) -> None:
    said = await client.audio.speech.create(model="tts", voice="alloy", input="good morning", response_format="wav")
    assert said.content == SOUND
    assert said.response.headers["content-type"] == "audio/wav"


async def test_a_form_arrives_with_its_file_byte_for_byte(provider: Provider, client: openai.AsyncOpenAI) -> None:
    said = await client.audio.transcriptions.create(model="whisper", file=("a.mp3", SOUND), language="es")
    assert said.text == f"You sent {len(SOUND)} bytes as a.mp3"
    assert provider.last.json["file"]["bytes"] == SOUND
    assert (provider.last.json["model"], provider.last.json["language"]) == ("whisper", "es")
    text = await client.audio.transcriptions.create(model="w", file=("b.mp3", b"\r\n"), response_format="text")
    assert text == "You sent 2 bytes as b.mp3\n"


async def test_images_are_made(client: openai.AsyncOpenAI) -> None:
    made = await client.images.generate(model="gpt-image-1", prompt="a red cat", n=2)
    assert made.data
    assert [base64.b64decode(one.b64_json or "") for one in made.data] == [PNG, PNG]
    assert made.usage
    assert (made.usage.input_tokens, made.usage.output_tokens) == (3, 200)


async def test_they_fail_and_are_cut_by_the_script_too(provider: Provider, client: openai.AsyncOpenAI) -> None:
    provider.script(Fail(429), Reply(cut="fin"))
    with pytest.raises(openai.RateLimitError):
        await client.embeddings.create(model="e", input="x")
    with pytest.raises(openai.APIConnectionError):
        await client.audio.speech.create(model="tts", voice="alloy", input="x")
    assert not provider.last.whole


async def test_a_path_that_is_not_spoken_is_not_found_and_names_no_model() -> None:
    async with (
        Provider(speaks=("/v1/chat/completions",)) as provider,
        openai.AsyncOpenAI(base_url=provider.url, api_key="k", max_retries=0) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["scripted-small", "scripted-large"]
        messages: Any = [{"role": "user", "content": "hi"}]
        answer = await client.chat.completions.create(model="m", messages=messages)
        assert answer.choices[0].message.content == "You said: hi"
        for path in ("/embeddings", "/nowhere"):
            with pytest.raises(openai.NotFoundError, match=rf"Invalid URL \(POST /v1{path}\)") as caught:
                await client.post(path, body={}, cast_to=object)
            assert (caught.value.type, caught.value.code) == ("invalid_request_error", None)


async def test_only_post_is_allowed_where_answers_are_made(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.get("/chat/completions", cast_to=object)
    assert caught.value.status_code == 405
