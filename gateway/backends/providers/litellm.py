"""Kind `litellm`: providers whose API the gateway does not implement. The only module that imports litellm."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import orjson

from gateway.backends.http.canned import Canned
from gateway.backends.providers.base import PATHS, Call, Upstream
from gateway.dialects.base import Translator
from gateway.domain.answer import Sink
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BackendError, BackendGarbage, BackendTimeout, BackendUnreachable, StreamBroken
from gateway.settings.environment import keep_litellm_offline

log = logging.getLogger(__name__)

_FIELDS = frozenset(
    re.findall(
        r"\w+",
        """
        messages tools tool_choice parallel_tool_calls functions function_call response_format n stop seed user
        stream stream_options max_tokens max_completion_tokens temperature top_p presence_penalty frequency_penalty
        logit_bias logprobs top_logprobs reasoning_effort thinking verbosity modalities audio prediction service_tier
        """,
    )
)
"""Request fields that are passed to litellm. All other fields are dropped, because litellm would also read addresses,
credentials and callbacks from them."""
_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})
"""Fields of a reply that are passed to the client."""


def _load(model: str) -> Any:
    """Import litellm. Then make a mocked call, so that litellm also imports the parts that `model` needs. Raises
    ImportError if litellm is not installed."""
    keep_litellm_offline()
    import litellm

    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    try:
        for stream in (False, True):
            litellm.completion(
                model, [{"role": "user", "content": "?"}], api_key="-", mock_response="ready", stream=stream
            )
    except litellm.exceptions.BadRequestError as error:
        log.warning("litellm does not know how to reach %s: %s", model, error)
    return litellm


class ViaLitellm:
    """Accepts requests in OpenAI's chat dialect. litellm translates the requests for the provider of `backend.model`
    (for example `cohere_chat/…`)."""

    dialect: DialectName = "openai_chat"
    fetches = True

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.secret = backend.api_key.get_secret_value() if backend.api_key else ""
        self._litellm: Any = None

    async def open(self) -> None:
        """Import litellm in a thread, because the import takes seconds. If litellm is not installed, only this backend
        is unusable."""
        try:
            self._litellm = await asyncio.to_thread(_load, self._backend.model)
        except ImportError:
            log.error("backend %s needs litellm: pip install 'thriftgate[litellm]'", self._backend.name)

    async def aclose(self) -> None:
        """Does nothing, because litellm's connections are shared across the process."""

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        return PATHS["openai_chat"]

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """Returns None, because litellm does not expose the `retry-after` header."""
        return None

    async def send(self, call: Call) -> Upstream:
        backend, body = self._backend, orjson.loads(call.body)
        if self._litellm is None:
            missing = BackendUnreachable(f"{backend.name} needs litellm, which is not installed", backend=backend.name)
            raise missing.of_operator()
        try:
            async with asyncio.timeout(call.first_byte_timeout), asyncio.timeout_at(call.deadline):
                reply = await self._litellm.acompletion(
                    model=backend.model,
                    api_base=backend.base_url or None,
                    api_key=self.secret or None,
                    timeout=backend.timeout,
                    drop_params=True,
                    num_retries=0,
                    max_retries=0,
                    _skip_mcp_handler=True,  # otherwise litellm would look for tools of its proxy's servers
                    **{name: value for name, value in body.items() if name in _FIELDS},
                )
                if not body.get("stream"):
                    return Canned(200, orjson.dumps(_standard(reply)))
                return await _Chunks.begun(reply, call, backend.name)
        except TimeoutError:
            raise BackendTimeout(f"{backend.name} did not begin to answer in time", backend=backend.name) from None
        except BackendError:
            raise
        except Exception as error:
            return self._refusal(getattr(error, "original_exception", None) or error)

    def _refusal(self, error: Exception) -> Upstream:
        """The provider's response for which litellm raised `error`. Raises BackendError if there was no response."""
        exceptions, name = self._litellm.exceptions, self._backend.name
        if isinstance(error, exceptions.Timeout):
            raise BackendTimeout(f"{name} did not answer in time", backend=name) from error
        status = getattr(error, "status_code", None)
        if isinstance(error, exceptions.APIConnectionError) or not isinstance(status, int):
            raise BackendUnreachable(f"{name} cannot be reached", backend=name) from error
        error_body = {"message": _words(str(getattr(error, "message", error))), "type": "invalid_request_error"}
        if isinstance(error, exceptions.ContextWindowExceededError):
            error_body["code"] = "context_length_exceeded"
        return Canned(status, orjson.dumps({"error": error_body}) if error_body["message"] else b"")


class _Chunks:
    """Implements `Upstream` over litellm's chunks, written as server-sent events."""

    status = 200
    headers = ((b"content-type", b"text/event-stream"),)

    def __init__(self, chunks: Any, first: Any, call: Call, name: str) -> None:
        self._chunks, self._next, self._call, self._name = chunks, first, call, name
        self.whole = False

    @classmethod
    async def begun(cls, chunks: Any, call: Call, name: str) -> _Chunks:
        """Wait for the first chunk, because litellm raises a provider's refusal only at that point."""
        try:
            first = await anext(chunks, None)
            if _invented(first, chunks):
                raise BackendGarbage(f"{name} ended its stream without an answer", backend=name)
            return cls(chunks, first, call, name)
        except BaseException:
            await chunks.aclose()
            raise

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)

    async def pipe_to(self, take: Sink) -> bool:
        while not self.whole:
            if self._next is None:
                self._next = await self._another()
            self.whole = self._next is None
            data = b"[DONE]" if self.whole else orjson.dumps(_standard(self._next))
            self._next = None
            if not take(b"data: " + data + b"\n\n"):
                return True
        return False

    async def _another(self) -> Any:
        """The next chunk; None after the last."""
        call, name = self._call, self._name
        try:
            async with asyncio.timeout(call.stall_timeout), asyncio.timeout_at(call.deadline):
                chunk = await anext(self._chunks, None)
        except TimeoutError:
            raise BackendTimeout(f"{name} did not finish in time", backend=name) from None
        except Exception as error:
            raise StreamBroken(f"{name} broke off in the middle of its answer", backend=name) from error
        if _invented(chunk, self._chunks):
            raise StreamBroken(f"{name} closed its stream before the answer was complete", backend=name)
        return chunk

    async def read(self, limit: int) -> bytes:
        pieces: list[bytes] = []

        def keep(piece: bytes) -> bool:
            pieces.append(piece)
            return True

        await self.pipe_to(keep)
        return b"".join(pieces)[:limit]

    def arrived(self) -> bytes:
        """Returns nothing, because chunks are never read as a plain body."""
        return b""

    def half_close(self) -> bool:
        return False

    async def aclose(self) -> None:
        await self._chunks.aclose()


def _invented(chunk: Any, chunks: Any) -> bool:
    """Whether litellm has added an end of the answer that the provider did not send. False if that cannot be known.
    `chunk`: the chunk that reports the end."""
    ended = any(choice.finish_reason for choice in getattr(chunk, "choices", None) or ())
    reasons = ("received_finish_reason", "intermittent_finish_reason")
    return ended and all(getattr(chunks, name, "unknown") is None for name in reasons)


def _standard(reply: Any) -> dict[str, Any]:
    """A reply or chunk that has only the fields that OpenAI's API has. In a stream, the usage is in a chunk of its own,
    without choices."""
    fields: dict[str, Any] = reply.model_dump(exclude_none=True)
    fields = {key: value for key, value in fields.items() if key in _KEYS}
    if isinstance(usage := fields.get("usage"), dict):
        usage.pop("cost", None)  # litellm's own cost estimate
        if fields["object"] == "chat.completion.chunk" and not any(
            choice.get("delta") or choice.get("finish_reason") for choice in fields["choices"]
        ):
            fields["choices"] = []
    return fields


def _words(message: str) -> str:
    """The provider's error text without litellm's prefix; empty if it is an HTML page or a traceback."""
    found = re.search(r"\{.*\}", message, re.DOTALL)
    try:
        parsed = orjson.loads(found[0]) if found else None
    except orjson.JSONDecodeError:
        parsed = None
    inner = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get("message"), str):
        return str(inner["message"])
    bare = re.sub(r"^(?:litellm\.\w+: )+(?:\w+Exception(?: \w+)? - )?", "", message)
    return "" if "<" in bare or "Traceback" in bare else bare[:500]
