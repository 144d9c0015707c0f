"""The scripted provider's other endpoints, none of which streams: embeddings, moderations, rerank, audio, images."""

from __future__ import annotations

import base64
import email
import struct
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import shake_256
from typing import Any

import orjson

from gateway.domain.money.usage import Usage
from tests.fakes.provider_answer import tokenize
from tests.fakes.provider_openai import CREATED
from tests.fakes.provider_script import Reply

DIMENSIONS = 8
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
SOUND = b"ID3\x04\x00" + bytes(range(256)) * 8 + b"\r\n\r\n"
"""No text in any encoding."""

_TYPES = {"mp3": "audio/mpeg", "opus": "audio/opus", "aac": "audio/aac", "flac": "audio/flac", "wav": "audio/wav"}
_CATEGORIES = (
    *("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm"),
    *("self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence", "violence/graphic"),
)


@dataclass(frozen=True)
class Served:
    body: bytes
    usage: Usage
    """The truth, whatever the body claims."""
    text: str = ""
    content_type: str = "application/json"


def read(body: bytes, content_type: bytes) -> dict[str, Any]:
    """A request's fields; of a form each file is its name, type and bytes. Raises ValueError."""
    if not content_type.startswith(b"multipart/form-data"):
        fields: dict[str, Any] = orjson.loads(body)
        return fields
    form = email.message_from_bytes(b"content-type: " + content_type + b"\r\n\r\n" + body)
    if not form.is_multipart():
        raise ValueError("no form")
    return dict(_field(part) for part in form.get_payload() if isinstance(part, email.message.Message))


def _field(part: email.message.Message) -> tuple[str, Any]:
    name = str(part.get_param("name", header="content-disposition"))
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    filename = part.get_filename()
    if filename is None:
        return name, content.decode()
    return name, {"filename": filename, "content_type": part.get_content_type(), "bytes": content}


def vector(given: str | list[int], dimensions: int = DIMENSIONS) -> list[float]:
    """What is embedded of one input: always the same, and exact in 32 bits."""
    seed = given.encode() if isinstance(given, str) else b",".join(b"%d" % token for token in given)
    numbers = struct.unpack(f"<{dimensions}h", shake_256(seed).digest(2 * dimensions))
    return [number / 32768 for number in numbers]


def embeddings(fields: dict[str, Any], reply: Reply, number: int) -> Served:
    inputs = _inputs(fields["input"])
    size = int(fields.get("dimensions") or DIMENSIONS)
    rows = [
        {"object": "embedding", "index": place, "embedding": _encoded(vector(given, size), fields)}
        for place, given in enumerate(inputs)
    ]
    tokens = sum(len(tokenize(given)) if isinstance(given, str) else len(given) for given in inputs)
    body = {"object": "list", "data": rows, "model": fields["model"]}
    return _json(body, Usage(input_tokens=tokens), reply, {"prompt_tokens": tokens, "total_tokens": tokens})


def _inputs(given: Any) -> list[Any]:
    """Texts and lists of tokens. Raises ValueError for nothing to embed."""
    one = isinstance(given, str) or (given and all(isinstance(token, int) for token in given))
    inputs = [given] if one else list(given)
    if not inputs or not all(inputs):
        raise ValueError("'$.input' is invalid: an input may not be empty")
    return inputs


def _encoded(numbers: list[float], fields: dict[str, Any]) -> Any:
    if fields.get("encoding_format") == "base64":
        return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    return numbers


def moderations(fields: dict[str, Any], reply: Reply, number: int) -> Served:
    """Whatever speaks of a kill is violent."""
    given = fields["input"]
    texts = [given] if isinstance(given, str) else [part if isinstance(part, str) else str(part) for part in given]
    body = {"id": f"modr-{number}", "model": fields.get("model") or "omni-moderation-latest"}
    return _json({**body, "results": [_judged(text) for text in texts]}, Usage(), reply)


def _judged(text: str) -> dict[str, Any]:
    found = {"violence"} if "kill" in text else set()
    return {
        "flagged": bool(found),
        "categories": {name: name in found for name in _CATEGORIES},
        "category_scores": {name: 0.9 if name in found else 0.0001 for name in _CATEGORIES},
        "category_applied_input_types": {name: ["text"] for name in _CATEGORIES},
    }


def rerank(fields: dict[str, Any], reply: Reply, number: int) -> Served:
    """Best is who shares most words with the query."""
    texts = [one["text"] if isinstance(one, dict) else one for one in fields["documents"]]
    query = set(fields["query"].lower().split())
    scores = [len(query & set(text.lower().split())) / max(1, len(query)) for text in texts]
    best = sorted(range(len(texts)), key=lambda place: -scores[place])[: fields.get("top_n")]
    results = [{"index": place, "relevance_score": scores[place], "document": {"text": texts[place]}} for place in best]
    tokens = sum(len(tokenize(text)) for text in (fields["query"], *texts))
    body = {"id": f"rerank-{number}", "model": fields["model"], "results": results}
    return _json(body, Usage(input_tokens=tokens), reply, {"prompt_tokens": tokens, "total_tokens": tokens})


def speech(fields: dict[str, Any], reply: Reply, number: int) -> Served:
    kind = _TYPES.get(fields.get("response_format") or "mp3", "application/octet-stream")
    return Served(SOUND, Usage(input_tokens=len(tokenize(fields["input"]))), content_type=kind)


def transcriptions(fields: dict[str, Any], reply: Reply, number: int) -> Served:
    file = fields["file"]
    text = reply.text or f"You sent {len(file['bytes'])} bytes as {file['filename']}"
    usage = Usage(audio_tokens=len(file["bytes"]), output_tokens=len(tokenize(text)))
    match fields.get("response_format") or "json":
        case "json":
            claim = {"type": "tokens", "input_tokens": usage.audio_tokens, "output_tokens": usage.output_tokens}
            return _json({"text": text}, usage, reply, {**claim, "total_tokens": usage.total}, text)
        case "verbose_json":
            body = {"task": "transcribe", "language": "english", "duration": 1.5, "text": text, "segments": []}
            return _json(body, usage, reply, {"type": "duration", "seconds": 2}, text)
        case _:
            return Served(text.encode() + b"\n", usage, text, "text/plain; charset=utf-8")


def images(fields: dict[str, Any], reply: Reply, number: int) -> Served:
    linked = fields.get("response_format") == "url"
    one = {"url": "https://images.example/1.png"} if linked else {"b64_json": base64.b64encode(PNG).decode()}
    count, asked = int(fields.get("n") or 1), len(tokenize(fields["prompt"]))
    usage = Usage(input_tokens=asked, output_tokens=100 * count)
    claim = {
        "input_tokens": asked,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total,
        "input_tokens_details": {"text_tokens": asked, "image_tokens": 0},
    }
    return _json({"created": CREATED, "data": [one] * count}, usage, reply, claim)


def _json(
    body: dict[str, Any], usage: Usage, reply: Reply, claim: dict[str, Any] | None = None, text: str = ""
) -> Served:
    if claim is not None and reply.usage != "absent":
        body["usage"] = claim
    return Served(orjson.dumps(body), usage, text)


def count_tokens(fields: dict[str, Any], reply: Reply, number: int) -> Served:
    """Anthropic's: no answer, and nothing to pay."""
    return Served(orjson.dumps({"input_tokens": 7 * len(fields["messages"])}), Usage())


SERVED: dict[str, Callable[[dict[str, Any], Reply, int], Served]] = {
    "/v1/messages/count_tokens": count_tokens,
    "/v1/embeddings": embeddings,
    "/v1/moderations": moderations,
    "/v1/rerank": rerank,
    "/v1/audio/speech": speech,
    "/v1/audio/transcriptions": transcriptions,
    "/v1/images/generations": images,
}
"""Fields, script and a number to make ids of → what is served. Raises ValueError and KeyError for a bad request."""
