"""Converts a `batchEmbedContents` request of the Gemini API to the methods of Vertex AI.

Google's SDKs call `embedContent` for newer models and `predict` for the others:
https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api
"""

from __future__ import annotations

from typing import Any

import orjson

_PREDICTED = "gemini-embedding-001"
REFUSED = orjson.dumps(
    {"error": {"code": 400, "message": "This model embeds one text in a request: send each input alone."}}
)
"""The answer to a request with several texts, in Google's form."""
_LENGTH = "outputDimensionality"


def embeds_alone(model: str) -> bool:
    """Whether `model` is called with `embedContent`, which accepts only one text."""
    return "gemini" in model and model != _PREDICTED


def embedded_alone(body: bytes) -> bytes | None:
    """The body for `embedContent`; None if there are several texts.

    As at OpenAI, a text that is too long is refused and not truncated.
    """
    asked = orjson.loads(body)["requests"]
    if len(asked) != 1:
        return None
    found = {name: value for name, value in asked[0].items() if name != "model"}
    return orjson.dumps({**found, "autoTruncate": False})


def predicted(body: bytes) -> bytes:
    """The body for `predict`. As at OpenAI, a text that is too long is refused and not truncated."""
    asked = orjson.loads(body)["requests"]
    parameters: dict[str, Any] = {"autoTruncate": False}
    if _LENGTH in asked[0]:
        parameters[_LENGTH] = asked[0][_LENGTH]
    return orjson.dumps({"instances": [_instance(each) for each in asked], "parameters": parameters})


def _instance(asked: dict[str, Any]) -> dict[str, Any]:
    own = {theirs: asked[name] for name, theirs in (("taskType", "task_type"), ("title", "title")) if name in asked}
    return {"content": asked["content"]["parts"][0]["text"], **own}
