"""Amazon Bedrock on this machine: checks every byte of a signature with botocore, answers in its event stream."""

from __future__ import annotations

import time
from base64 import b64encode
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

import orjson
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.fakes.event_stream import event, exception
from tests.fakes.scripted import Body, Refuse, Scripted

MODELS = ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0")
_CLOCK_S = 300.0
USAGE = {"inputTokens": 9, "outputTokens": 4, "totalTokens": 18, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 0}


@dataclass
class Asked:
    model: str
    operation: str
    body: dict[str, Any]
    headers: dict[str, str]


def refuse(status: int, name: str, message: str = "scripted") -> Refuse:
    """An exception of the service."""
    return Refuse(status, {"message": message}, name)


@dataclass
class Bedrock(Scripted):
    """One region. `keys`: key id → (secret, session token); others are refused."""

    region: str = "eu-central-1"
    keys: dict[str, tuple[str, str]] = field(default_factory=lambda: {"AKIATEST": ("secret", "")})
    bearer: str = ""
    ahead_s: float = 0.0
    """How far its clock is ahead."""
    named_in: str = ""
    """The field of the body that names exceptions; empty: the header `x-amzn-errortype` does."""
    asked: list[Asked] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/{path:.*}", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if problem := self._problem(request, body):
            self.refused.append(problem)
            return self._error(refuse(403, *problem.split(": ", 1)))
        _, _, model, operation = request.raw_path.split("/")
        self.asked.append(Asked(unquote(model), operation, orjson.loads(body), dict(request.headers)))
        step = self.next_step()
        if isinstance(step, Refuse):
            return self._error(step)
        if unquote(model) not in MODELS:
            return self._error(refuse(400, "ValidationException", "The provided model identifier is invalid."))
        if isinstance(step, Body):
            return web.json_response(step.value)
        if operation in ("invoke", "converse"):
            return web.json_response(MESSAGE if operation == "invoke" else CONVERSED)
        usual = CLAUDES if operation.startswith("invoke") else NOVAS
        return await self.stream(request, "application/vnd.amazon.eventstream", step, usual)

    def _error(self, error: Refuse) -> web.Response:
        date = formatdate(time.time() + self.ahead_s, usegmt=True)
        headers = {"x-amzn-errortype": f"{error.name}:http://internal.amazon.com/", "date": date}
        if not self.named_in:
            return web.json_response(error.body, status=error.status, headers=headers)
        body = error.body | {self.named_in: f"com.amazon.coral.service#{error.name}"}
        return web.json_response(body, status=error.status, headers={"date": date})

    def _problem(self, request: web.Request, body: bytes) -> str:
        """Why the call is not admitted, as `Exception: words`; empty: it is."""
        given = request.headers.get("authorization", "")
        if given.startswith("Bearer "):
            known = self.bearer and given == f"Bearer {self.bearer}"
            return "" if known else "AccessDeniedException: Invalid API key format"
        key_id = given.partition("Credential=")[2].partition("/")[0]
        if key_id not in self.keys:
            return "UnrecognizedClientException: The security token included in the request is invalid."
        secret, token = self.keys[key_id]
        if request.headers.get("x-amz-security-token", "") != token:
            return "ExpiredTokenException: The security token included in the request is expired"
        stamp = request.headers.get("x-amz-date", "")
        sent_at = time.mktime(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) - time.timezone
        if abs(sent_at - time.time() - self.ahead_s) > _CLOCK_S:
            return "InvalidSignatureException: Signature expired: it is not within 5 min. of the server's time"
        if given != self._signature(request, body, Credentials(key_id, secret, token or None), stamp):
            return "InvalidSignatureException: The request signature we calculated does not match"
        return ""

    def _signature(self, request: web.Request, body: bytes, credentials: Credentials, stamp: str) -> str:
        """By botocore, of the headers that the request says are signed, which must be all of importance."""
        named = request.headers.get("authorization", "").partition("SignedHeaders=")[2].partition(",")[0].split(";")
        must = {"host", "content-type", "x-amz-date"} | ({"x-amz-security-token"} if credentials.token else set())
        assert must <= set(named)
        headers = {name: request.headers[name] for name in named}
        theirs = AWSRequest("POST", f"http://{request.host}{request.raw_path}", headers=headers, data=body)
        theirs.context["timestamp"] = stamp
        auth = SigV4Auth(credentials, "bedrock", self.region)
        signature = auth.signature(auth.string_to_sign(theirs, auth.canonical_request(theirs)), theirs)
        signed = ";".join(sorted(named))
        return f"AWS4-HMAC-SHA256 Credential={auth.scope(theirs)}, SignedHeaders={signed}, Signature={signature}"


def claudes(value: dict[str, Any]) -> bytes:
    """One of Anthropic's events in Bedrock's frame."""
    return event("chunk", {"bytes": b64encode(orjson.dumps(value)).decode(), "p": "abcdefgh"})


def throttled() -> bytes:
    return exception("throttlingException", "Too many requests, please wait before trying again.")


MESSAGE = {
    "id": "msg_bdrk_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "Hello from Claude"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 4, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0},
}
CLAUDES = tuple(
    claudes(each)
    for each in (
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " from Claude"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 9}},
    )
)
CONVERSED = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hello from Nova"}]}},
    "stopReason": "end_turn",
    "usage": USAGE,
    "metrics": {"latencyMs": 100},
}
NOVAS = tuple(
    event(kind, {**value, "p": "abc"})
    for kind, value in (
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello"}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": " from Nova"}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 100}}),
    )
)
