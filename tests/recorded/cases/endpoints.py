"""The endpoints beside conversations: embeddings, models, counted tokens, and what is passed through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.provider_script import Fail, Reply, Step
from tests.recorded.case import Case, Server, Spoken, json_body
from tests.recorded.cases.prompts import CLIENT_PATHS, fields

_EMBEDDINGS: dict[str, dict[str, Any]] = {
    "one text": {"input": "Hello"},
    "several texts": {"input": ["Hello", "there"]},
    "tokens": {"input": [9906, 1917]},
    "base64": {"input": "Hello", "encoding_format": "base64"},
    "dimensions": {"input": "Hello", "dimensions": 4},
    "user": {"input": "Hello", "user": "somebody", "brand_new_field": [1]},
}
_OTHER: dict[str, tuple[str, dict[str, Any]]] = {
    "speech": ("/v1/audio/speech", {"input": "Hello", "voice": "alloy"}),
    "speech as wav": ("/v1/audio/speech", {"input": "Hello", "voice": "alloy", "response_format": "wav"}),
    "images": ("/v1/images/generations", {"prompt": "A dot", "n": 2}),
    "images by URL": ("/v1/images/generations", {"prompt": "A dot", "response_format": "url"}),
    "moderations": ("/v1/moderations", {"input": "I kill time"}),
    "rerank": ("/v1/rerank", {"query": "a dot", "documents": ["a line", "a dot"], "top_n": 1}),
}
_FAILED: dict[str, Step] = {
    "400": Fail(400, "the voice is unknown", param="voice"),
    "401": Fail(401, "Incorrect API key provided."),
    "429": Fail(429, "slow down", retry_after="7"),
    "500": Fail(500, "it broke"),
    "cut midway": Reply(cut="fin"),
    "200 garbage": Fail(200, body="garbage"),
}
_BOUNDARY = "recorded-boundary"
_COUNTED = {"messages": [{"role": "user", "content": "Say hello to everybody"}], "system": "Be brief."}
_ANTHROPIC = (("anthropic-version", "2023-06-01"),)


def cases() -> Iterator[Case]:
    for what, asked in _EMBEDDINGS.items():
        yield _openai(f"embeddings: {what}", "/v1/embeddings", asked)
    for what, (path, asked) in _OTHER.items():
        yield _openai(what, path, asked)
    for what, step in _FAILED.items():
        yield _openai(f"embeddings: {what}", "/v1/embeddings", {"input": "Hello"}, step)
        yield _openai(f"speech: {what}", *_OTHER["speech"], step)
    yield _transcription()
    yield _closed()
    yield from _unspoken()
    yield from _counted()
    yield from _models()
    yield from _kinds()


def _openai(name: str, path: str, asked: dict[str, Any], step: Step | None = None) -> Case:
    slug = name.replace(": ", ".").replace(" ", "-")
    server = Server(f"other.{slug}", "openai", step or Reply(), open_to="plain")
    return Case(name, path, json_body(model=server.name, **asked), (server,))


def _transcription() -> Case:
    server = Server("other.transcription", "openai", Reply(text="Hello there"), open_to="plain")
    parts = [
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="model"\r\n\r\n{server.name}\r\n',
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n'
        "content-type: audio/wav\r\n\r\nRIFF....\r\n",
        f"--{_BOUNDARY}--\r\n",
    ]
    form = f"multipart/form-data; boundary={_BOUNDARY}"
    body = "".join(parts).encode()
    return Case("transcription of a form", "/v1/audio/transcriptions", body, (server,), content_type=form)


def _closed() -> Case:
    body = json_body(model="anything", input="Hello", voice="alloy")
    return Case("speech that the policy does not open", "/v1/audio/speech", body, team="closed")


def _unspoken() -> Iterator[Case]:
    """Servers that cannot be asked in the client's dialect."""
    clients: dict[str, tuple[str, dict[str, Any]]] = {
        "embeddings": ("/v1/embeddings", {"input": "Hello"}),
        "speech": _OTHER["speech"],
        "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    }
    servers: dict[str, tuple[Spoken, ...]] = {
        "embeddings": ("chat", "messages"),
        "speech": ("chat", "messages"),
        "chat": ("completions",),
    }
    for client, (path, asked) in clients.items():
        for speaks in servers[client]:
            server = Server(f"{client}.over.{speaks}", speaks, open_to="plain")
            yield Case(f"{client} over {speaks}", path, json_body(model=server.name, **asked), (server,))


def _counted() -> Iterator[Case]:
    for speaks in ("messages", "chat", "responses"):
        server = Server(f"counted.{speaks}", speaks, open_to="plain")
        body = json_body(model=server.name, **_COUNTED)
        yield Case(f"count_tokens over {speaks}", "/v1/messages/count_tokens", body, (server,), headers=_ANTHROPIC)


def _models() -> Iterator[Case]:
    servers = tuple(Server(f"shown-{speaks}", speaks, open_to="shown") for speaks in ("chat", "messages"))

    def case(name: str, path: str, headers: tuple[tuple[str, str], ...] = ()) -> Case:
        return Case(name, path, servers=servers, team="shown", method="GET", headers=headers)

    yield case("models", "/v1/models")
    yield case("models without /v1", "/models")
    yield case("models of Anthropic", "/v1/models", _ANTHROPIC)
    yield case("models of Anthropic, a page", "/v1/models?limit=2&after_id=auto", _ANTHROPIC)
    yield case("models of Anthropic, a bad page", "/v1/models?after_id=nothing", _ANTHROPIC)
    yield case("model", "/v1/models/shown-chat")
    yield case("model of Anthropic", "/v1/models/shown-messages", _ANTHROPIC)
    yield case("model that does not exist", "/v1/models/nothing")
    yield case("model of Anthropic that does not exist", "/v1/models/nothing", _ANTHROPIC)


def _kinds() -> Iterator[Case]:
    """Kinds of backends that are no provider's: a server of one's own, and none at all."""
    for kind in ("local", "simulated"):
        server = Server(f"kind.{kind}", "chat", Reply(text="Hello there"), kind=f"kind: {kind}", open_to="plain")
        for client in ("chat", "messages"):
            for stream in (False, True):
                asked = {"model": server.name, **fields(client, "length"), "stream": stream}
                name = f"{client} over a backend of kind {kind}, {'stream' if stream else 'plain'}"
                yield Case(name, CLIENT_PATHS[client], json_body(**asked), (server,))
