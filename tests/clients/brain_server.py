"""The scripted upstream on a socket, in a thread: one server per dialect, so that it is seen who was asked what."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any, ClassVar, Self
from urllib.parse import unquote

import orjson

from tests.clients import brain_chat, brain_converse, brain_gemini, brain_messages, brain_ollama, brain_responses
from tests.clients.brain import Refused, decide

CHAT = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/moderations")
MESSAGES = ("/v1/messages", "/v1/messages/count_tokens")
RESPONSES = ("/v1/responses",)
GEMINI, CONVERSE, OLLAMA = ("gemini",), ("converse",), brain_ollama.PATHS
"""Paths with a model in them are told by the name of what they serve."""

_COMPLETING: dict[str, tuple[Any, Any, Any]] = {
    "/v1/chat/completions": (brain_chat.parse, brain_chat.render, brain_chat.events),
    "/v1/completions": (brain_chat.completion_asked, brain_chat.completion, brain_chat.completion_events),
    "/v1/messages": (brain_messages.parse, brain_messages.render, brain_messages.events),
    "/v1/responses": (brain_responses.parse, brain_responses.render, brain_responses.events),
    "/api/chat": (brain_ollama.parse, brain_ollama.render, brain_ollama.events),
    "gemini": (brain_gemini.parse, brain_gemini.render, brain_gemini.events),
    "converse": (brain_converse.parse, brain_converse.render, brain_converse.events),
}
_TELLING: dict[str, Any] = {
    "/v1/embeddings": brain_chat.embeddings,
    "/v1/moderations": brain_chat.moderation,
    "/v1/messages/count_tokens": brain_messages.count,
    "/api/embed": brain_ollama.embed,
}
_STREAMS = {"converse": "application/vnd.amazon.eventstream", "/api/chat": "application/x-ndjson"}
_VENDORS: dict[str, ModuleType] = {
    "/v1/messages": brain_messages,
    "/v1/messages/count_tokens": brain_messages,
    "/api/chat": brain_ollama,
    "/api/embed": brain_ollama,
    "gemini": brain_gemini,
    "converse": brain_converse,
}


def _served(path: str) -> tuple[str, dict[str, Any]]:
    """What a path serves, and the fields that it has instead of the body."""
    for name, pattern in (("gemini", brain_gemini.PATH), ("converse", brain_converse.PATH)):
        if found := pattern.fullmatch(path):
            return name, {"model": unquote(found["model"]), "stream": bool(found["stream"])}
    return path, {}


@dataclass(frozen=True)
class Heard:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: Any


class Brain:
    """`speaks`: the paths that it knows; to others it says 404 as its vendor does."""

    def __init__(self, speaks: Iterable[str], api_key: str) -> None:
        self.speaks, self.api_key = frozenset(speaks), api_key
        self.heard: list[Heard] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.brain = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    brain: Brain


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    server: _Server

    def do_POST(self) -> None:
        brain = self.server.brain
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        path, fields = _served(self.path.partition("?")[0])
        vendor = _VENDORS.get(path, brain_chat)
        body = orjson.loads(raw)
        brain.heard.append(Heard(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        given = self.headers.get("x-api-key") or self.headers.get("x-goog-api-key")
        given = given or self.headers.get("authorization", "").removeprefix("Bearer ")
        try:
            if path not in brain.speaks:
                self._whole(404, vendor.error(404, f"Unknown request URL: POST {path}.", "unknown_url"))
            elif given != brain.api_key:
                self._whole(401, vendor.error(401, "Incorrect API key provided."))
            elif path in _TELLING:
                self._whole(200, _TELLING[path](body))
            else:
                self._complete(path, {**body, **fields})
        except Refused as refused:
            self._whole(refused.status, vendor.error(refused.status, str(refused)))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _complete(self, path: str, body: dict[str, Any]) -> None:
        parse, render, events = _COMPLETING[path]
        said = decide(parse(body))
        if not body.get("stream", path == "/api/chat"):
            self._whole(200, render(body, said))
            return
        self._head(200, _STREAMS.get(path, "text/event-stream"), "transfer-encoding", "chunked")
        for event in events(body, said):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        if said.broken:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _whole(self, status: int, value: dict[str, Any]) -> None:
        body = orjson.dumps(value)
        self._head(status, "application/json", "content-length", str(len(body)))
        self.wfile.write(body)

    def _head(self, status: int, kind: str, framing: str, how: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("request-id" if "/v1/messages" in self.path else "x-request-id", "req_brain")
        if status >= 400 and self.path.startswith("/model/"):
            self.send_header("x-amzn-errortype", brain_converse.EXCEPTIONS.get(status, "InternalServerException"))
        self.send_header(framing, how)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what was heard is kept."""
