"""Calls litellm. The only module that imports litellm; it runs in litellm's own process."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.settings.environment import keep_litellm_offline

_CHAT_FIELDS = frozenset(
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
_EMBEDDING_FIELDS = frozenset({"input", "dimensions", "encoding_format", "user"})
_CHAT_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})
"""Fields of a reply that are passed to the client."""
_EMBEDDING_KEYS = frozenset({"object", "data", "model", "usage"})


class Failed(Exception):
    """A stream broke off before its end."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to one call."""

    status: int = 200
    body: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = ()
    chunks: AsyncGenerator[bytes] | None = None
    """The chunks of a stream, as JSON. None for a plain answer. Raises Failed if the stream breaks off."""
    failure: str = ""
    """The reason why the provider sent no response; see `protocol.FAILURE`. Empty if the provider sent a response."""


class Litellm:
    """The library litellm. The constructor imports it. Raises ImportError if it is not installed."""

    def __init__(self) -> None:
        keep_litellm_offline()
        import litellm

        litellm.suppress_debug_info = True
        litellm.turn_off_message_logging = True
        self._library: Any = litellm

    def load(self, model: str) -> str:
        """Make mocked calls, so that litellm imports the parts that `model` needs. If litellm does not know the
        provider of `model`, returns the reason; otherwise, an empty text. Blocks."""
        try:
            for stream in (False, True):
                self._library.completion(
                    model, [{"role": "user", "content": "?"}], api_key="-", mock_response="ready", stream=stream
                )
        except self._library.exceptions.BadRequestError as error:
            return str(error)
        return ""

    async def chat(self, body: Mapping[str, Any], options: Mapping[str, Any]) -> Reply:
        """A chat completion. `options`: address, key and timeout."""
        arguments = {name: value for name, value in body.items() if name in _CHAT_FIELDS}
        try:
            reply = await self._library.acompletion(
                model=body["model"],
                drop_params=True,
                num_retries=0,
                max_retries=0,
                _skip_mcp_handler=True,  # otherwise litellm would look for tools of its proxy's servers
                **options,
                **arguments,
            )
            return await _begun(reply) if body.get("stream") else Reply(body=orjson.dumps(_standard(reply)))
        except Exception as error:
            return self._refusal(getattr(error, "original_exception", None) or error)

    async def embed(self, body: Mapping[str, Any], options: Mapping[str, Any]) -> Reply:
        """The embeddings of texts. `options`: address, key and timeout."""
        arguments = {name: value for name, value in body.items() if name in _EMBEDDING_FIELDS}
        try:
            reply = await self._library.aembedding(
                model=body["model"], drop_params=True, num_retries=0, max_retries=0, **options, **arguments
            )
        except Exception as error:
            return self._refusal(getattr(error, "original_exception", None) or error)
        fields = reply.model_dump(exclude_none=True)
        fields = {key: value for key, value in fields.items() if key in _EMBEDDING_KEYS}
        if body.get("encoding_format") == "base64":
            for each in fields.get("data", ()):
                each["embedding"] = _packed(each.get("embedding"))
        return Reply(body=orjson.dumps(fields))

    def _refusal(self, error: Exception) -> Reply:
        """The response that the provider sent, restored from the `error` that litellm raised. If the provider sent no
        response, the result contains the reason."""
        exceptions = self._library.exceptions
        if isinstance(error, exceptions.Timeout):
            return Reply(failure="timeout")
        status = getattr(error, "status_code", None)
        if isinstance(error, exceptions.APIConnectionError) or not isinstance(status, int):
            return Reply(failure="unreachable")
        error_body = {"message": words(str(getattr(error, "message", error))), "type": "invalid_request_error"}
        if isinstance(error, exceptions.ContextWindowExceededError):
            error_body["code"] = "context_length_exceeded"
        body = orjson.dumps({"error": error_body}) if error_body["message"] else b""
        return Reply(status, body, _pause(error))


async def _begun(chunks: Any) -> Reply:
    """Wait until the first chunk of a stream has arrived. This is needed because litellm raises a provider's
    refusal only at that point.
    """
    try:
        first = await anext(chunks, None)
        if not _invented(first, chunks):
            return Reply(chunks=_chunks(first, chunks))
    except BaseException:
        await chunks.aclose()
        raise
    await chunks.aclose()
    return Reply(failure="garbage")


async def _chunks(first: Any, chunks: Any) -> AsyncGenerator[bytes]:
    """Yield `first` and the chunks after it, as JSON. Raises Failed."""
    async with aclosing(chunks):
        chunk = first
        while chunk is not None:
            yield orjson.dumps(_standard(chunk))
            try:
                chunk = await anext(chunks, None)
            except Exception as error:
                raise Failed from error
            if _invented(chunk, chunks):
                raise Failed


def _invented(chunk: Any, chunks: Any) -> bool:
    """Whether the end of the answer comes from litellm and not from the provider. `chunk`: the chunk that reports the
    end.

    litellm reports an end whenever a connection closes. For some providers, litellm does not show whether the provider
    sent the end. Then this function returns False.
    """
    ended = any(choice.finish_reason for choice in getattr(chunk, "choices", None) or ())
    reasons = ("received_finish_reason", "intermittent_finish_reason")
    return ended and all(getattr(chunks, name, "unknown") is None for name in reasons)


def _standard(reply: Any) -> dict[str, Any]:
    """A reply or chunk with only the fields of OpenAI's API. In a stream, the usage is in a separate chunk without
    choices.
    """
    fields: dict[str, Any] = reply.model_dump(exclude_none=True)
    fields = {key: value for key, value in fields.items() if key in _CHAT_KEYS}
    if isinstance(usage := fields.get("usage"), dict):
        usage.pop("cost", None)  # litellm's own cost estimate
        if fields["object"] == "chat.completion.chunk" and not any(
            choice.get("delta") or choice.get("finish_reason") for choice in fields["choices"]
        ):
            fields["choices"] = []
    return fields


def _packed(vector: Any) -> Any:
    """A vector of numbers as base64 of 32-bit floats, in OpenAI's format. Other values are returned unchanged."""
    if not isinstance(vector, list):
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _pause(error: Exception) -> list[tuple[bytes, bytes]]:
    """The provider's `retry-after` header, if litellm has kept the response."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = headers.get("retry-after")
    return [(b"retry-after", str(value).encode("latin-1", "replace"))] if value else []


def words(message: str) -> str:
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
