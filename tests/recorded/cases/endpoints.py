"""The endpoints beside conversations: embeddings, models, counted tokens, and what is passed through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.provider_script import Fail, Raw, Reply, Step
from tests.recorded.case import Case, Server, Spoken, json_body, server_name
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
_TRANSCRIPT = (
    b'data: {"type":"transcript.text.delta","delta":"Hello"}\n\n',
    b'data: {"type":"transcript.text.done","text":"Hello",'
    b'"usage":{"type":"tokens","input_tokens":3,"output_tokens":1}}\n\n',
    b"data: [DONE]\n\n",
)
_BROKEN = b'data: {"type":"error","error":{"message":"the engine stopped","type":"server_error"}}\n\n'
_EVENTS: dict[str, tuple[bytes, ...]] = {
    "whole": _TRANSCRIPT,
    "without an end": _TRANSCRIPT[:1],
    "with an error": (*_TRANSCRIPT[:1], _BROKEN),
    "nothing but an error": (_BROKEN,),
    "not JSON": (b"data: hello\n\n", b"data: [DONE]\n\n"),
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
    yield from _streamed()
    yield _transcription()
    yield _closed()
    yield from _unspoken()
    yield from _counted()
    yield from _models()
    yield from _kinds()


def _openai(name: str, path: str, asked: dict[str, Any], step: Step | None = None) -> Case:
    server = Server(server_name("other", name), "openai", step or Reply(), open_to="plain")
    return Case(name, path, json_body(model=server.name, **asked), (server,))


def _streamed() -> Iterator[Case]:
    """Events that are passed through; and sound, which has no events."""
    for what, events in _EVENTS.items():
        body = b"".join(events)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
        asked = {"input": "Hello", "voice": "alloy", "stream_format": "sse"}
        yield _openai(f"speech as events: {what}", "/v1/audio/speech", asked, Raw((head + body,)))


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
