"""OpenAI's and Google's embeddings over Gemini and Bedrock: requests, vectors and counts."""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any

import orjson
import pytest

from gateway.backends.providers.vertex.embeddings import embedded_alone, embeds_alone, predicted
from gateway.dialects.canonical import canonical
from gateway.dialects.clients import at
from gateway.dialects.registry import wire
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BackendGarbage, BadRequest
from tests.support.requests import request_in

GEMINI = wire("openai_embeddings", "gemini_generate")
BEDROCK = wire("openai_embeddings", "bedrock_converse")
TITAN, COHERE = "amazon.titan-embed-text-v2:0", "cohere.embed-v4:0"


def asked(given: Any, **fields: Any) -> CompletionRequest:
    return request_in("openai_embeddings", input=given, model="emb", **fields)


def googles(method: str, **fields: Any) -> CompletionRequest:
    dialect = at(f"/v1beta/models/emb:{method}")
    assert dialect is not None
    return dialect.parse(orjson.dumps(fields), "req_7", Controls(), {})


def content(text: str) -> dict[str, Any]:
    return {"content": {"parts": [{"text": text}]}}


def test_gemini_gets_one_request_for_each_text() -> None:
    sent = orjson.loads(GEMINI.body(asked(["a", "b"], dimensions=3), "gemini-embedding-001", None))
    name = "models/gemini-embedding-001"
    assert sent == {"requests": [{"model": name, **content(text), "outputDimensionality": 3} for text in "ab"]}
    assert orjson.loads(GEMINI.body(asked("a"), "models/x", None)) == {
        "requests": [{"model": "models/x", **content("a")}]
    }


def test_googles_clients_keep_their_task_and_title_over_gemini_and_share_no_vector_between_tasks() -> None:
    one = googles("embedContent", **content("a"), task_type="RETRIEVAL_QUERY")
    (sent,) = orjson.loads(GEMINI.body(one, "x", None))["requests"]
    assert sent == {"model": "models/x", **content("a"), "taskType": "RETRIEVAL_QUERY"}
    assert canonical(one) != canonical(googles("embedContent", **content("a")))
    batch = googles("batchEmbedContents", requests=[{**content("a"), "title": "t"}, content("b")])
    assert [each.get("title") for each in orjson.loads(GEMINI.body(batch, "x", None))["requests"]] == ["t", None]
    other = orjson.loads(wire("openai_embeddings", "openai_embeddings").body(one, "m", None))
    assert other == {"model": "m", "input": ["a"], "encoding_format": "float"}


@pytest.mark.parametrize(
    "reply",
    [
        {"embeddings": [{"values": [0.5]}, {"values": [1.0]}], "usageMetadata": {"promptTokenCount": 5}},
        {
            "predictions": [
                {"embeddings": {"values": [0.5], "statistics": {"token_count": 2.0, "truncated": False}}},
                {"embeddings": {"values": [1.0], "statistics": {"token_count": 3}}},
            ]
        },
    ],
)
def test_vectors_and_tokens_of_google(reply: dict[str, Any]) -> None:
    plain = GEMINI.plain(asked(["a", "b"]), orjson.dumps(reply))
    body = orjson.loads(plain.body)
    assert [row["embedding"] for row in body["data"]] == [[0.5], [1.0]]
    assert (body["usage"], plain.usage) == ({"prompt_tokens": 5, "total_tokens": 5}, Usage(input_tokens=5))
    coded = orjson.loads(GEMINI.plain(asked(["a", "b"], encoding_format="base64"), orjson.dumps(reply)).body)
    assert coded["data"][1]["embedding"] == b64encode(struct.pack("<f", 1.0)).decode()


def test_an_answer_without_a_count_is_booked_by_the_estimate() -> None:
    request = asked("a")
    request.estimated_tokens = 7
    plain = GEMINI.plain(request, orjson.dumps({"embedding": {"values": [0.5]}}))
    assert plain.usage == Usage(7, estimated=True)


@pytest.mark.parametrize("reply", [{}, {"embeddings": [{"values": [1]}]}, {"predictions": [{}]}, {"embedding": 5}])
def test_an_answer_that_lacks_vectors_is_garbage(reply: dict[str, Any]) -> None:
    with pytest.raises(BackendGarbage):
        GEMINI.plain(asked(["a", "b"]), orjson.dumps(reply))


def test_vertex_gets_predict_for_older_models_and_embed_content_for_one_text() -> None:
    own = {"taskType": "RETRIEVAL_DOCUMENT", "title": "t"}
    request = googles("batchEmbedContents", requests=[{**content("a"), **own, "outputDimensionality": 3}])
    body = GEMINI.body(request, "x", None)
    assert [embeds_alone(name) for name in ("gemini-embedding-001", "text-embedding-005", "gemini-embedding-2")] == [
        *(False, False, True)
    ]
    assert orjson.loads(predicted(body)) == {
        "instances": [{"content": "a", "task_type": "RETRIEVAL_DOCUMENT", "title": "t"}],
        "parameters": {"autoTruncate": False, "outputDimensionality": 3},
    }
    alone = embedded_alone(body)
    assert alone is not None
    assert orjson.loads(alone) == {**content("a"), **own, "outputDimensionality": 3, "autoTruncate": False}
    assert embedded_alone(GEMINI.body(asked(["a", "b"]), "x", None)) is None


def test_bedrocks_titan_and_cohere() -> None:
    assert orjson.loads(BEDROCK.body(asked("a", dimensions=256), TITAN, None)) == {"inputText": "a", "dimensions": 256}
    sent = orjson.loads(BEDROCK.body(asked(["a", "b"]), COHERE, None))
    assert sent == {
        "texts": ["a", "b"],
        "input_type": "search_document",
        "embedding_types": ["float"],
        "truncate": "NONE",
    }
    plain = BEDROCK.plain(asked("a"), orjson.dumps({"embedding": [0.5], "inputTextTokenCount": 2}))
    assert (orjson.loads(plain.body)["data"][0]["embedding"], plain.usage) == ([0.5], Usage(input_tokens=2))
    for found in ([[0.5]], {"float": [[0.5]]}):
        plain = BEDROCK.plain(asked("a"), orjson.dumps({"embeddings": found}))
        assert orjson.loads(plain.body)["data"][0]["embedding"] == [0.5]


@pytest.mark.parametrize(("given", "model"), [(["a", "b"], TITAN), ("a", "amazon.nova-pro-v1:0"), ([[1, 2]], COHERE)])
def test_what_bedrock_does_not_embed_is_a_400(given: Any, model: str) -> None:
    with pytest.raises(BadRequest):
        BEDROCK.body(asked(given), model, None)
