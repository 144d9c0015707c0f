"""Google on this machine: token endpoints that verify signatures, the Gemini API, and Vertex AI."""

from __future__ import annotations

import asyncio
import subprocess
import time
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from tests.fakes.scripted import Body, Refuse, Scripted

KEY = "AIza-test-key"
PROJECT, LOCATION = "our-project", "europe-west4"
CLAUDE, GEMINI = "claude-sonnet-4-5@20250929", "gemini-2.5-flash"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
USAGE = {
    "promptTokenCount": 14,
    "cachedContentTokenCount": 5,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 3,
    "totalTokenCount": 21,
}


@dataclass
class Asked:
    path: str
    query: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class Google(Scripted):
    """`public`: file with the public key that assertions must be signed for; `tokens`: access tokens in force."""

    public: Path | None = None
    email: str = "gateway@our-project.iam.gserviceaccount.com"
    tokens: set[str] = field(default_factory=set)
    life_s: int = 3600
    down: bool = False
    ahead_s: float = 0.0
    """Seconds by which this server's clock is ahead of the machine's."""
    asked: list[Asked] = field(default_factory=list)
    granted: list[str] = field(default_factory=list)
    """How each token was asked for."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/token", self._token),
            web.post("/impersonate", self._impersonate),
            web.get("/subject", self._subject),
            web.get("/computeMetadata/v1/instance/service-accounts/default/token", self._metadata),
            web.post("/{path:.*}", self._answer),
        ]

    def _grant(self, how: str) -> str:
        self.granted.append(how)
        self.tokens = {f"ya29.token-{len(self.granted)}"}
        return next(iter(self.tokens))

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        kind = str(form["grant_type"]).rpartition(":")[2]
        if self.down:
            return web.json_response({"error": "internal_failure", "error_description": "secret words"}, status=500)
        if kind == "jwt-bearer" and (problem := await self._problem(str(form["assertion"]))):
            date = {"date": formatdate(self._now(), usegmt=True)}
            return web.json_response({"error": "invalid_grant", "error_description": problem}, status=400, headers=date)
        if kind == "refresh_token" and form != {**form, "client_id": "c", "client_secret": "s", "refresh_token": "r"}:
            return web.json_response({"error": "invalid_grant"}, status=400)
        of_aws = str(form.get("subject_token_type")).endswith("aws4_request")
        subject = "%7B%22headers" if of_aws else "subject"
        if kind == "token-exchange" and not (str(form["subject_token"]).startswith(subject) and form["scope"] == SCOPE):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": self._grant(kind), "expires_in": self.life_s, "token_type": "Bearer"})

    def _now(self) -> float:
        return time.time() + self.ahead_s

    async def _problem(self, assertion: str) -> str:
        head, claims, signature = assertion.split(".")
        assert self.public is not None
        file = self.public.with_name("signature")
        file.write_bytes(_unbase64(signature))
        check = await asyncio.create_subprocess_exec(
            *("openssl", "dgst", "-sha256", "-verify", str(self.public), "-signature", str(file)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        await check.communicate(f"{head}.{claims}".encode())
        said = orjson.loads(_unbase64(claims))
        if check.returncode or orjson.loads(_unbase64(head)) != {"alg": "RS256", "typ": "JWT", "kid": "key-1"}:
            return "Invalid JWT Signature."
        if (said["iss"], said["scope"], said["aud"]) != (self.email, SCOPE, f"{self.url}/token"):
            return "Invalid claims."
        return "" if said["iat"] <= self._now() < said["exp"] <= said["iat"] + 3600 else "Invalid JWT: not in time."

    async def _impersonate(self, request: web.Request) -> web.Response:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return web.json_response({}, status=401)
        return web.json_response({"accessToken": self._grant("impersonated"), "expireTime": "2099-01-01T00:00:00Z"})

    async def _subject(self, request: web.Request) -> web.Response:
        return (
            web.json_response({"value": "subject"})
            if request.headers.get("x-for") == "us"
            else web.Response(status=403)
        )

    async def _metadata(self, request: web.Request) -> web.Response:
        if request.headers.get("metadata-flavor") != "Google":
            return web.Response(status=403)
        return web.json_response({"access_token": self._grant("metadata"), "expires_in": self.life_s})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        if not self._admits(path, headers):
            error = {"code": 401, "message": "Request had invalid credentials.", "status": "UNAUTHENTICATED"}
            return web.json_response({"error": error}, status=401)
        self.asked.append(Asked(path, query, orjson.loads(await request.read()), headers))
        step = self.next_step()
        if isinstance(step, Refuse):
            return web.json_response(step.body, status=step.status)
        if isinstance(step, Body):
            return web.json_response(step.value)
        claude, streams = "/publishers/anthropic/" in path, ":stream" in path
        if not streams:
            return web.json_response(MESSAGE if claude else REPLY)
        return await self.stream(request, "text/event-stream", step, CLAUDES if claude else EVENTS)

    def _admits(self, path: str, headers: dict[str, str]) -> bool:
        """One credential, the right one. The Gemini API takes keys alone."""
        token, key = headers.get("authorization", ""), headers.get("x-goog-api-key", "")
        if token and key:
            return False
        if path.startswith("/v1/projects/"):
            return token.removeprefix("Bearer ") in self.tokens or key == KEY
        return key == KEY


def _unbase64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def key_pair(folder: Path, bits: int = 2048, *, traditional: bool = False) -> tuple[str, Path]:
    """A private key as PEM (PKCS #8, or PKCS #1), and the file of its public key. May block."""
    private, public = folder / "private.pem", folder / "public.pem"
    quiet = {"check": True, "capture_output": True}
    subprocess.run(
        ["openssl", "genrsa", *(["-traditional"] if traditional else []), "-out", private, str(bits)], **quiet
    )  # type: ignore[call-overload]
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], **quiet)  # type: ignore[call-overload]
    return private.read_text(), public


def event(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\r\n\r\n"


def part(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A reply, or an event of a stream."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}
    said = {"candidates": [candidate], "modelVersion": GEMINI, "responseId": "r1"}
    return {**said, "usageMetadata": USAGE} if more else said


REPLY = part({"text": "Hello from Gemini"}, finishReason="STOP")
EVENTS = tuple(
    event(each)
    for each in (part({"text": "Hello"}), part({"text": " from"}), part({"text": " Gemini"}, finishReason="STOP"))
)
MESSAGE = {
    "id": "msg_vrtx_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "Hello from Claude"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 4, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0},
}
CLAUDES = tuple(
    b"event: %b\ndata: %b\n\n" % (each["type"].encode(), orjson.dumps(each))  # type: ignore[attr-defined]
    for each in (
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello from Claude"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    )
)
