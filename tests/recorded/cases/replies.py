"""What servers answer in each situation, as steps of the scripted provider."""

from __future__ import annotations

from typing import Any

from tests.fakes.provider_script import Fail, Reply, Step
from tests.recorded.case import Spoken


def _call(number: int, city: str) -> dict[str, Any]:
    function = {"name": "lookup", "arguments": f'{{"query": "{city}"}}'}
    return {"id": f"call_{number}", "type": "function", "function": function}


_TWO_CALLS = {"role": "assistant", "content": "Both", "tool_calls": [_call(1, "Lima"), _call(2, "Oslo")]}
_TWO_BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": "Both"},
    {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"query": "Lima"}},
    {"type": "tool_use", "id": "toolu_2", "name": "lookup", "input": {"query": "Oslo"}},
)
_TWO_THOUGHTS: tuple[dict[str, Any], ...] = (
    {"type": "thinking", "thinking": "Two and two", "signature": "signed"},
    {"type": "redacted_thinking", "data": "sealed"},
    {"type": "text", "text": "It is four"},
)
_REPLIES: dict[str, Step] = {
    "text": Reply(text="Hello there"),
    "tool": Reply(tool="lookup"),
    "tool result": Reply(text="In Peru"),
    "reasoning": Reply(text="It is four", reasoning="Two and two"),
    "sealed reasoning": Reply(text="It is four", reasoning="Two and two"),
    "schema": Reply(text='{"city": "Lima"}'),
    "json object": Reply(text='{"city": "Lima"}'),
    "length": Reply(text="Hello there, my friend"),
    "filtered": Reply(text="I would", finish="content_filter"),
    "image": Reply(text="A dot"),
    "cached": Reply(text="Known", cached_tokens=1, cache_write_tokens=1),
    "uncounted": Reply(text="Hello there", usage="absent"),
    "miscounted": Reply(text="Hello there", usage="nonsense"),
    "counted as nothing": Reply(text="Hello there", usage="zero"),
    "counted tenfold": Reply(text="Hello there", usage="wrong"),
    "counted below zero": Reply(text="Hello there", usage="negative"),
    "unicode": Reply(text="¿Qué? 日本 🌈", split=True, crlf=True),
    "empty": Reply(text=""),
}
_OF_ONE_SERVER: dict[tuple[str, Spoken], Step] = {
    ("two calls", "chat"): Reply(message=_TWO_CALLS),
    ("two calls", "responses"): Reply(message=_TWO_CALLS),
    ("two calls", "messages"): Reply(blocks=_TWO_BLOCKS),
    ("two thoughts", "messages"): Reply(blocks=_TWO_THOUGHTS),
    ("refusal", "chat"): Reply(message={"role": "assistant", "content": None, "refusal": "I cannot help"}),
    ("refusal", "messages"): Reply(text="I cannot", finish="content_filter"),
    ("stop", "messages"): Reply(text="Hello", stop_sequence="END"),
    ("failed", "responses"): Reply(finish="failed"),
    ("padded", "messages"): Reply(text="Hello there", padded=True),
}
BROKEN: dict[str, Step] = {
    "cut at the start": Reply(text="Hello there, friend", cut="fin"),
    "cut midway": Reply(text="Hello there, friend", cut="fin", after=2),
    "reset midway": Reply(text="Hello there, friend", cut="rst", after=2),
    "torn": Reply(text="Hello there, friend", cut="fin", after=2, inside=True),
    "error event": Reply(text="Hello there, friend", error_event="the engine stopped", after=2),
    "no end": Reply(text="Hello there", done=False),
}
"""Of an answer that has begun; a plain one is cut after half of its body."""
FAILED: dict[str, Step] = {
    "400": Fail(400, "the image cannot be read", code="invalid_image", param="messages"),
    "401": Fail(401, "Incorrect API key provided."),
    "403": Fail(403, "not from your country"),
    "404": Fail(404, "The model does not exist"),
    "422": Fail(422, "a field is wrong", param="temperature"),
    "429": Fail(429, "slow down", retry_after="7"),
    "429 no quota": Fail(429, "You exceeded your quota", code="insufficient_quota"),
    "500": Fail(500, "it broke"),
    "503": Fail(503, "too much to do", retry_after="30"),
    "529": Fail(529, "Overloaded"),
    "502 html": Fail(502, body="html"),
    "200 garbage": Fail(200, body="garbage"),
    "200 empty": Fail(200, body="empty"),
    "400 garbage": Fail(400, body="garbage"),
    "400 truncated": Fail(400, "the image cannot be read", body="truncated"),
    "hung up": Fail(cut="fin"),
}
"""Instead of an answer."""


def step(situation: str, speaks: Spoken) -> Step:
    """What a server that speaks this dialect answers; `text` where the situation is the request's alone."""
    given = _OF_ONE_SERVER.get((situation, speaks)) or _REPLIES.get(situation)
    return given or BROKEN.get(situation) or FAILED.get(situation) or _REPLIES["text"]
