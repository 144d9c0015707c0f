"""Embeddings over a backend that has them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_embeddings.dialect import parse
from gateway.dialects.openai_embeddings.native import EmbeddingsToEmbeddings
from gateway.domain.money.usage import Usage
from gateway.domain.request import Controls
from gateway.errors import BackendGarbage

wire = EmbeddingsToEmbeddings()
RAW = b'{"input": [[1,2],\n[3]], "model": "alias", "encoding_format": "base64", "dimensions": 8, "tomorrow": 1.0}'
ROWS = [{"object": "embedding", "index": 0, "embedding": "AAAAAA=="}]


def answer(**more: Any) -> bytes:
    return orjson.dumps({"object": "list", "data": ROWS, "model": "m", **more})


def test_only_the_model_is_spliced() -> None:
    request = parse(RAW, "r", Controls(), {})
    assert wire.body(request, "m", None, logprobs=True, max_output_tokens=0) == RAW.replace(b'"alias"', b'"m"')
    assert wire.body(request, "alias", None) is request.raw


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_answer_goes_through_and_its_usage_is_input_alone(place: str) -> None:
    usage = {"usage": {"prompt_tokens": 3, "total_tokens": 3}}
    body = answer(**usage) if place == "after" else orjson.dumps({**usage, "object": "list", "data": ROWS})
    plain = wire.plain(parse(RAW, "r", Controls(), {}), body)
    assert plain.body is body
    assert plain.usage == Usage(input_tokens=3)
    assert plain.finish == "stop"


@pytest.mark.parametrize("more", [{}, {"usage": None}, {"usage": {"prompt_tokens": 0}}, {"usage": None, "x": {"y": 1}}])
def test_without_usage_it_is_what_was_sent(more: dict[str, Any]) -> None:
    plain = wire.plain(parse(RAW, "r", Controls(), {}), answer(**more))
    doubt = "input_tokens" if more.get("usage") else ""
    assert plain.usage == Usage(input_tokens=3, estimated=True, doubt=doubt)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"usage": {"prompt_tokens": 1}}',
        b'{"error": {"message": "data"}, "data": [], "usage": {"prompt_tokens": 1}}',
        b'{"choices": []}',
    ],
)
def test_anything_but_embeddings_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        wire.plain(parse(RAW, "r", Controls(), {}), body)
