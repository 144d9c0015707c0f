"""The one door to litellm: providers whose dialect the gateway does not speak itself."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import orjson

from gateway.backends.canned import Canned
from gateway.backends.upstream import Call, Upstream
from gateway.domain.backend import Backend
from gateway.domain.request import DialectName
from gateway.errors import BackendTimeout, BackendUnreachable, StreamBroken
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
"""What may pass from a request. litellm reads addresses, credentials and callbacks from the same arguments."""


def _load() -> Any:
    """Raises ImportError without the extra."""
    keep_litellm_offline()
    import litellm

    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    return litellm


class ViaLitellm:
    """Speaks OpenAI's chat dialect to the room and whatever `backend.model` needs (`cohere_chat/…`) to the provider."""

    dialect: DialectName = "openai_chat"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._litellm: Any = None

    async def open(self) -> None:
        """Import litellm: seconds, so off the loop. Without the extra this backend fails, the others work."""
        try:
            self._litellm = await asyncio.to_thread(_load)
        except ImportError:
            log.exception("backend %s needs litellm: pip install 'thriftgate[litellm]'", self._backend.name)

    async def aclose(self) -> None:
        """litellm pools its connections for the whole process."""

    def retry_after_s(self, upstream: Upstream) -> float | None:
        value = upstream.header(b"retry-after")
        return float(value) if value is not None and value.isdigit() else None

    async def send(self, call: Call) -> Upstream:
        backend, body = self._backend, orjson.loads(call.body)
        if self._litellm is None:
            raise BackendUnreachable(f"{backend.name} needs litellm, which is not installed", backend=backend.name)
        arguments = {name: value for name, value in body.items() if name in _FIELDS}
        try:
            async with asyncio.timeout(call.first_byte_timeout), asyncio.timeout_at(call.deadline):
                reply = await self._litellm.acompletion(
                    model=backend.model,
                    api_base=backend.base_url or None,
                    api_key=backend.api_key.get_secret_value() if backend.api_key else None,
                    timeout=backend.timeout,
                    drop_params=True,
                    num_retries=0,
                    max_retries=0,
                    **arguments,
                )
        except TimeoutError:
            raise BackendTimeout(f"{backend.name} did not answer in time", backend=backend.name) from None
        except Exception as error:
            return self._refusal(error)
        if body.get("stream"):
            return _Chunks(reply, call, backend.name)
        return Canned(200, reply.model_dump_json(exclude_none=True).encode())

    def _refusal(self, error: Exception) -> Upstream:
        """litellm's exception as the response that it stands for. Raises BackendErrors where there was none."""
        exceptions = self._litellm.exceptions
        name = self._backend.name
        if isinstance(error, exceptions.Timeout):
            raise BackendTimeout(f"{name} did not answer in time", backend=name) from error
        status = getattr(error, "status_code", None)
        if isinstance(error, exceptions.APIConnectionError) or not isinstance(status, int):
            raise BackendUnreachable(f"{name} cannot be reached", backend=name) from error
        response = getattr(error, "response", None)
        waits = response.headers.get("retry-after") if response is not None else None
        code = "context_length_exceeded" if isinstance(error, exceptions.ContextWindowExceededError) else None
        told = {
            "error": {"message": str(getattr(error, "message", error)), "code": code, "type": "invalid_request_error"}
        }
        return Canned(status, orjson.dumps(told), {b"retry-after": str(waits).encode()} if waits else None)


class _Chunks:
    """Implements `Upstream` over litellm's chunks, written again as server-sent events."""

    status = 200

    def __init__(self, chunks: Any, call: Call, name: str) -> None:
        self._chunks, self._call, self._name = chunks, call, name

    def header(self, name: bytes) -> bytes | None:
        return b"text/event-stream" if name == b"content-type" else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout_at(self._call.deadline):
                    chunk = await anext(self._chunks)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise BackendTimeout(f"{self._name} took longer than its timeout", backend=self._name) from None
            except Exception as error:
                raise StreamBroken(f"The stream of {self._name} broke", backend=self._name) from error
            yield b"data: " + chunk.model_dump_json(exclude_none=True).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    async def read(self, limit: int) -> bytes:
        return b"".join([piece async for piece in self])[:limit]

    async def aclose(self) -> None:
        await self._chunks.aclose()
