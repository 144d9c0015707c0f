"""Kind `bedrock`: Claude through InvokeModel, other models through Converse."""

from __future__ import annotations

import logging
import time
from urllib.parse import quote

from gateway.backends.http.wire import Origin
from gateway.backends.providers.base import Call, Upstream, error_body
from gateway.backends.providers.bedrock.answers import Events, anthropics_events, converse_events, named_in, refused
from gateway.backends.providers.bedrock.credentials import CredentialChain
from gateway.backends.providers.bedrock.event_stream import CONTENT_TYPE
from gateway.backends.providers.bedrock.signature import Credentials, signed
from gateway.backends.providers.cloud_claude import asked_betas, claude_body
from gateway.backends.providers.over_http import OverHttp
from gateway.backends.providers.renewal import Headers, their_time
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest

log = logging.getLogger(__name__)

_VERSION = "bedrock-2023-05-31"
_SERVICE = "bedrock"
_OPERATIONS = {
    ("anthropic_messages", False): "invoke",
    ("anthropic_messages", True): "invoke-with-response-stream",
    ("bedrock_converse", False): "converse",
    ("bedrock_converse", True): "converse-stream",
}
"""(Dialect, whether the answer is a stream) → the last segment of the path."""
_STALE = ("ExpiredToken", "UnrecognizedClient", "InvalidClientTokenId", "InvalidSignature", "MissingAuthentication")
"""Prefixes of the names of exceptions that mean outdated credentials."""
_TIMED = ("InvalidSignature", "RequestTimeTooSkewed", "RequestExpired", "SignatureDoesNotMatch")
"""Prefixes of the names of exceptions that a wrong clock may cause."""
_SKEW_S = 60.0
"""Maximum difference in seconds between AWS's clock and this machine's clock. If the difference is larger, signatures
use AWS's time. AWS refuses requests if the difference is five minutes or more."""


class Bedrock(OverHttp):
    """A Bedrock backend. Signs each call, unless `api_key` is a Bedrock API key."""

    models_path = None

    def __init__(self, backend: Backend, credentials: CredentialChain | None = None) -> None:
        super().__init__(backend)
        self.dialect = backend.spoken[0]
        self._origin, self._region = Origin.parse(backend.base_url), backend.region
        self._model = quote(backend.sent_model, safe="")
        self._by_key = bool(self.secret)
        self._credentials = credentials or CredentialChain(backend.name, backend.aws_profile, region=backend.region)
        self._ahead_s = 0.0
        """Seconds by which AWS's clock is ahead of this machine's clock. 0 until a difference of more than `_SKEW_S` is
        found."""

    async def aclose(self) -> None:
        await self._credentials.aclose()
        await super().aclose()

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        if request.dialect == "openai_embeddings":
            return f"/model/{self._model}/invoke"
        return f"/model/{self._model}/{_OPERATIONS[wire.backend, request.stream]}"

    async def send(self, call: Call) -> Upstream:
        """Send the call. If AWS refuses its signature, and a different signature can be made, send the call once
        more."""
        used = None if self._by_key else await self._credentials.current()
        upstream = await self._sent(call, used)
        if upstream.status >= 400:
            name, body = await _problem(upstream)
            if not (used and upstream.status in (400, 401, 403) and await self._mended(upstream, name, used)):
                return refused(upstream.status, name, body, upstream.headers)
            upstream = await self._sent(call, await self._credentials.current())
            if upstream.status >= 400:
                return refused(upstream.status, *await _problem(upstream), upstream.headers)
        if (upstream.header(b"content-type") or b"").startswith(CONTENT_TYPE):
            return Events(upstream, anthropics_events if call.wire.backend == "anthropic_messages" else converse_events)
        return upstream

    async def _sent(self, call: Call, used: Credentials | None) -> Upstream:
        request, wire = call.request, call.wire
        path, body = self.url(request, wire), call.body
        if wire.backend == "anthropic_messages":
            body = claude_body(body, _VERSION, streams_by_path=True, betas=asked_betas(request, wire))
        headers = [
            (b"content-type", b"application/json"),
            (b"accept", CONTENT_TYPE if request.stream else b"application/json"),
        ]
        if used is None:
            headers.append((b"authorization", b"Bearer " + self.secret.encode()))
        else:
            headers = self._signed(path, headers, body, used)
            call.secret = self.secret = used.token or used.secret
        return await self._client.post(
            self._client.opening(path, headers) + b"x-request-id: %b\r\n" % call.attempt_id.encode("ascii"),
            body,
            deadline=call.deadline,
            first_byte_timeout=call.first_byte_timeout,
            stall_timeout=call.stall_timeout,
        )

    def _signed(self, path: str, headers: Headers, body: bytes, credentials: Credentials) -> Headers:
        return signed(
            "POST",
            self._origin.target(path),
            [(b"host", self._origin.authority), *headers],
            body,
            credentials,
            region=self._region,
            service=_SERVICE,
            now=time.time() + self._ahead_s,
        )

    async def _mended(self, upstream: Upstream, name: str, used: Credentials) -> bool:
        """After a refused signature: whether the gateway should sign and send the call again.

        True if the clock of the signatures was corrected, or if the credentials now differ from `used`. `name`: the
        name of AWS's exception.
        """
        if (
            name.startswith(_TIMED)
            and (ahead := _ahead_s(upstream)) is not None
            and abs(ahead - self._ahead_s) > _SKEW_S
        ):
            log.warning("this machine's clock differs from AWS's by %d s; signatures use AWS's", ahead)
            self._ahead_s = ahead
            return True
        return name.startswith(_STALE) and await self._credentials.replaced(used)


def _ahead_s(upstream: Upstream) -> float | None:
    theirs = their_time(upstream.header(b"date"))
    return None if theirs is None else theirs - time.time()


async def _problem(upstream: Upstream) -> tuple[str, bytes]:
    """Read an error response, and close it. Returns (name of AWS's exception, body). The name comes from the
    header, or from the body if the header is missing.
    """
    try:
        body = await error_body(upstream)
    finally:
        await upstream.aclose()
    named = (upstream.header(b"x-amzn-errortype") or b"").decode("latin-1")
    return named.partition(":")[0] or named_in(body), body
