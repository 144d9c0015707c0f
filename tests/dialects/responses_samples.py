"""Responses requests, chat streams to tell again, and OpenAI's own client fed with the result."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import orjson
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.translate.responses_to_chat.translator import ResponsesToChat
from gateway.dialects.via_chat import ViaChat
from gateway.domain.request import CompletionRequest
from tests.dialects.samples import DONE, USAGE_ONLY, chunk, read
from tests.support.requests import request_in

NOW = 1_700_000_000
translation = ResponsesToChat(clock=lambda: NOW + 0.5)
wire = ViaChat(translation, ChatToChat())
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def responses_request(**fields: Any) -> CompletionRequest:
    """Always with the same id, from which the ids of its items come."""
    return request_in("openai_responses", request_id="req_0123456789ab", **fields)


def chat_fields_of(**fields: Any) -> dict[str, Any]:
    """The chat body of a request."""
    return translation.chat(responses_request(**fields), None)


def streamed(request: CompletionRequest, *deltas: dict[str, Any], finish: str = "stop", usage: bool = True) -> bytes:
    """The whole stream that the client gets when a chat backend streams `deltas`."""
    sent = [chunk({"role": "assistant", "content": ""}), *map(chunk, deltas), chunk({}, finish)]
    reader = wire.reader(request)
    relayed = read(reader, [*sent, *([USAGE_ONLY] if usage else []), DONE])
    return relayed + reader.ending


def events(stream: bytes) -> list[dict[str, Any]]:
    """Every event, its name compared with its type, its number with its place, and strictly valid."""
    found = []
    for block in stream.removesuffix(b"\n\n").split(b"\n\n"):
        name, _, data = block.partition(b"\n")
        event = orjson.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        EVENT.validate_python(event)
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def types(stream: bytes) -> list[str]:
    """Their types without `response.`, neighbours of one type once."""
    names = [event["type"].removeprefix("response.") for event in events(stream)]
    return [name for place, name in enumerate(names) if place == 0 or names[place - 1] != name]


def final(stream: bytes) -> Response:
    return Response.model_validate(events(stream)[-1]["response"])


def accumulate(stream: bytes, **options: Any) -> Any:
    """What the SDK's own streaming helper makes of `stream`."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        client = openai.OpenAI(api_key="k", base_url="http://gateway/v1", http_client=http, max_retries=0)
        with client.responses.stream(model="auto", input="hello", **options) as stream_of_events:
            return stream_of_events.get_final_response()
