"""What request headers change: wishes, what is forwarded, codings, repeated requests; and responses that are stored."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.fakes.provider_script import Reply
from tests.recorded.case import RESPONSE_ID, Case, Server, Spoken, json_body, server_name
from tests.recorded.cases.prompts import CLIENT_PATHS, fields

Headers = tuple[tuple[str, str], ...]

_ASKED_OF_THE_GATEWAY: dict[str, Headers] = {
    "tier": (("x-thriftgate-tier", "small"),),
    "tags and session": (("x-thriftgate-tags", "feature=answers,env=test"), ("x-thriftgate-session", "s-42")),
    "batch priority": (("x-thriftgate-priority", "batch"),),
    "deadline": (("x-thriftgate-deadline", "30s"),),
}
_FORWARDED: dict[Spoken, Headers] = {
    "chat": (
        ("openai-beta", "assistants=v2"),
        ("openai-organization", "org-of-the-client"),
        ("x-client-request-id", "mine-1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("user-agent", "OpenAI/Python 1.0"),
        ("x-stainless-lang", "python"),
    ),
    "messages": (
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "context-1m-2025-08-07,interleaved-thinking-2025-05-14"),
        ("x-client-request-id", "mine-1"),
        ("user-agent", "Anthropic/Python 1.0"),
    ),
    "responses": (("openai-beta", "responses=v1"), ("x-client-request-id", "mine-1")),
    "completions": (("x-client-request-id", "mine-1"),),
}
_CODINGS = ("gzip", "deflate", "br", "zstd", "gzip, deflate", "br;q=1, gzip;q=0.5", "identity")


def cases() -> Iterator[Case]:
    for what, headers in _ASKED_OF_THE_GATEWAY.items():
        yield _case(f"header: {what}", "chat", "chat", headers)
    for client, headers in _FORWARDED.items():
        for speaks in ("chat", "messages"):
            yield _case(f"headers of {client}", client, speaks, headers)
    beta = _case("query: beta", "messages", "messages", ())
    yield replace(beta, path=f"{beta.path}?beta=true&key=secret")
    yield from _encoded()
    yield from _late()
    yield from _unspoken()
    yield from _repeated()
    yield from _stored()


def _case(name: str, client: Spoken, speaks: Spoken, headers: Headers, step: Reply | None = None, **asked: Any) -> Case:
    server = Server(server_name(name, client, speaks), speaks, step or Reply(text="Hello there"), open_to="plain")
    body = json_body(**{"model": server.name, **fields(client, "plain"), **asked})
    return Case(f"{name}, {client} over {speaks}", CLIENT_PATHS[client], body, (server,), headers=headers)


def _encoded() -> Iterator[Case]:
    for coding in _CODINGS:
        for stream in (False, True):
            name = f"accept-encoding {coding}, {'stream' if stream else 'plain'}"
            yield _case(name, "chat", "chat", (("accept-encoding", coding),), Reply(text="la" * 600), stream=stream)
    plain = _case("body in gzip", "chat", "chat", (("content-encoding", "gzip"),))
    yield replace(plain, body=_stored_gzip(plain.body))
    yield replace(plain, name="body that is no gzip")
    yield replace(plain, name="body in an unknown coding", headers=(("content-encoding", "rot13"),))


def _stored_gzip(body: bytes) -> bytes:
    """Not compressed, so that its bytes are the same with every version of zlib."""
    writing = zlib.compressobj(0, zlib.DEFLATED, 31)
    return writing.compress(body) + writing.flush()


def _late() -> Iterator[Case]:
    """Servers that are silent for longer than the backend's settings allow, before an answer and midway."""
    silent: dict[str, tuple[Reply, bool, str]] = {
        "no answer in time, plain": (Reply(delay_s=60.0), False, "timeout: 1s"),
        "no answer in time, stream": (Reply(delay_s=60.0), True, "first_byte_timeout: 1s"),
        "silent midway, stream": (Reply(text="Hello there", cut="hang", after=1), True, "stall_timeout: 1s"),
    }
    for what, (reply, stream, setting) in silent.items():
        case = _case(what, "chat", "chat", (), reply, stream=stream)
        yield replace(case, servers=(replace(case.servers[0], more=setting),))


def _unspoken() -> Iterator[Case]:
    """A server of OpenAI's kind that turns out to know chat alone: it is asked again in another dialect, once."""
    for client in ("responses", "completions"):
        server = Server(f"unspoken.{client}", "chat", Reply(text="Hello there"), kind="kind: openai", open_to="plain")
        body = json_body(model=server.name, **fields(client, "plain"))
        for place in (1, 2):
            yield Case(f"endpoint that a server lacks, {client}, {place}", CLIENT_PATHS[client], body, (server,))


def _repeated() -> Iterator[Case]:
    for client in ("chat", "messages"):
        for stream in (False, True):
            mode = "stream" if stream else "plain"
            key = (("idempotency-key", f"once-{client}-{mode}"),)
            asked = _case(f"idempotency-key, {mode}", client, client, key, stream=stream)
            yield replace(asked, name=f"{asked.name}, first")
            yield replace(asked, name=f"{asked.name}, again")
            other = json_body(**{"model": asked.servers[0].name, **fields(client, "text")})
            yield replace(asked, name=f"{asked.name}, with another body", body=other)


def _stored() -> Iterator[Case]:
    """Responses that the gateway keeps, whether the server speaks Responses or not."""
    for speaks in ("responses", "chat"):
        server = Server(f"stored.{speaks}", speaks, Reply(text="Hello there"), open_to="storing")
        first = f"stored response over {speaks}"

        def case(name: str, path: str, method: str = "GET", server: Server = server, **asked: Any) -> Case:
            body = json_body(**{"model": server.name, **asked}) if asked else b""
            return Case(name, path, body, (server,), "storing", method)

        yield case(first, "/v1/responses", "POST", input="Say hello", store=True)
        later: dict[str, Any] = {"input": "Again", "previous_response_id": RESPONSE_ID}
        followed = [
            case(f"{first}, continued", "/v1/responses", "POST", **later),
            case(f"{first}, continued as a stream", "/v1/responses", "POST", **later, stream=True),
            case(f"{first}, read", f"/v1/responses/{RESPONSE_ID}"),
            case(f"{first}, its input", f"/v1/responses/{RESPONSE_ID}/input_items"),
            case(f"{first}, cancelled", f"/v1/responses/{RESPONSE_ID}/cancel", "POST"),
            case(f"{first}, deleted", f"/v1/responses/{RESPONSE_ID}", "DELETE"),
            case(f"{first}, read after that", f"/v1/responses/{RESPONSE_ID}"),
            case(f"{first}, continued after that", "/v1/responses", "POST", **later),
        ]
        for each in followed:
            yield replace(each, after=first)
