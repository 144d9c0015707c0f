"""Requests that are passed through."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from gateway.dialects.passthrough.dialect import ENDPOINTS, Endpoint
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest

JSON = {b"content-type": b"application/json; charset=utf-8", b"authorization": b"secret"}


def passthrough_request(
    path: str = "/moderations", controls: Controls | None = None, **fields: Any
) -> CompletionRequest:
    body = orjson.dumps({"model": "mod", "input": "hello", **fields})
    return Endpoint(path).parse(body, "req_1", controls or Controls(), JSON)


def form(fields: dict[str, Any], **files: bytes) -> CompletionRequest:
    request = httpx.Request("POST", "http://x", data=fields, files={"file": ("a.mp3", b"\xff" * 100), **files})
    headers = {b"content-type": request.headers["content-type"].encode()}
    return Endpoint("/audio/transcriptions").parse(request.read(), "req_1", Controls(), headers)


def test_it_is_one_model_s_affair_never_kept_nor_trimmed() -> None:
    request = passthrough_request()
    assert (request.dialect, request.path, request.model, request.stream) == (
        "openai_other",
        "/moderations",
        "mod",
        False,
    )
    assert (request.one_model, request.one_context) == (True, False)
    assert (request.controls.cache, request.controls.untouched) == ("bypass", True)
    assert passthrough_request(controls=Controls(cache="only")).controls.cache == "only"
    assert request.headers == {b"content-type": b"application/json; charset=utf-8"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"input": ["a", "b"]}, "a\nb"),
        ({"input": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "b"}}]}, "a"),
        ({"input": None, "prompt": "draw"}, "draw"),
        ({"input": None, "query": "q", "documents": ["d", {"text": "e"}]}, "q\nd\ne"),
    ],
)
def test_its_text_is_found_to_be_counted(fields: dict[str, Any], text: str) -> None:
    assert passthrough_request(**fields).turns[0].text == text


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream_format": "sse"}])
def test_a_json_body_may_ask_for_a_stream(fields: dict[str, Any]) -> None:
    assert passthrough_request("/audio/speech", **fields).stream


def test_a_form_names_its_model_and_may_ask_for_a_stream() -> None:
    request = form({"model": "whisper", "prompt": "names", "stream": "true"})
    assert (request.model, request.stream, request.turns[0].text) == ("whisper", True, "names")
    assert request.headers[b"content-type"].startswith(b"multipart/form-data; boundary=")
    assert not form({"model": "whisper", "stream": "false"}).stream


@pytest.mark.parametrize("body", [b"", b"[]", b'{"input": "hello"}', b'{"model": 5}', b"\xff\xfb\x90"])
def test_without_a_model_it_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        Endpoint("/moderations").parse(body, "r", Controls(), JSON)
    with pytest.raises(BadRequest) as caught:
        form({"prompt": "no model"})
    assert caught.value.param == "model"


def test_every_endpoint_belongs_to_what_a_policy_can_allow() -> None:
    assert set(ENDPOINTS.values()) == {"audio", "images", "moderations", "rerank"}
