"""Requests that the gateway refuses by itself, in each client dialect's shape."""

from __future__ import annotations

from collections.abc import Iterator

from tests.recorded.case import Case, Server, json_body
from tests.recorded.cases.conversations import BODIES

SERVER = Server("refusals", "chat")
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "no model": b"{}",
    "model of a wrong type": b'{"model": 7}',
    "nothing but a model": b'{"model": "refusals"}',
}


def cases() -> Iterator[Case]:
    for client, (path, asked) in BODIES.items():
        for name, body in BROKEN.items():
            yield Case(f"{client} refused: {name}", path, body, (SERVER,))
        whole = {"model": "refusals", **asked}
        yield Case(f"{client} refused: unknown model", path, json_body(**{**whole, "model": "nobody"}), (SERVER,))
        yield Case(f"{client} refused: no key", path, json_body(**whole), (SERVER,), team="")
        yield Case(f"{client} refused: GET", path, b"", (SERVER,), method="GET")
        for header, value in (("cache", "perhaps"), ("tier", "middle"), ("deadline", "soon"), ("context", "cut")):
            headers = ((f"x-thriftgate-{header}", value),)
            yield Case(f"{client} refused: {header} {value}", path, json_body(**whole), (SERVER,), headers=headers)
    for path in ("/v1/nothing", "/v1/models", "/v1/models/nobody", "/", "/v1/usage?since=soon"):
        yield Case(f"GET {path}", path, b"", (SERVER,), method="GET")
