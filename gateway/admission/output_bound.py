"""The maximum output tokens of one call, and whether a call may be capped if the money does not cover them."""

from __future__ import annotations

from gateway.admission.output_forecast import Forecast
from gateway.dialects.anthropic_messages import models
from gateway.dialects.facts import FACTS
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.request import MEDIA_MOST_TOKENS, CompletionRequest

ASSUMED_MOST_TOKENS = 131_072
"""Maximum output tokens of an answer if neither the client nor the backend nor its window limits it. No present model
writes more."""
_GENEROUS = 4
"""Factor on the learned quantile. A cap of this many tokens hardly ever cuts an answer."""
_LEAST_GENEROUS_TOKENS = 1024
LEAST_CAP_TOKENS = 256
"""Minimum tokens of a cap, unless the policy says `truncate`."""
_FIRST_REASONING_TOKENS = 4096
"""Minimum tokens of a cap for a backend that reasons, until its usual amount of reasoning is known."""
_WHOLE_OR_NOTHING = frozenset({"tools", "json_schema"})
"""Capabilities for which a truncated answer is useless: half a tool call, or half a JSON document."""


def most_output(backend: Backend, request: CompletionRequest | None, input_tokens: int) -> int:
    """Maximum tokens of one answer: the client's own limit, the backend's limit, what its window leaves, or an
    assumption."""
    most, known = None if request is None else request.max_output_tokens, backend.max_output_tokens
    if most is None:
        if request is not None and FACTS[request.dialect].opaque:
            most = MEDIA_MOST_TOKENS
        elif backend.facts.requires_max_tokens and (request is None or request.dialect != "anthropic_messages"):
            most = models.MOST_USUAL_OUTPUT  # the gateway must send a number, and sends no larger one
        else:
            most = ASSUMED_MOST_TOKENS
    if known is not None and known < most:
        most = known
    if backend.window_tokens:
        # prompts do not share a window, so the input of all of them does not limit the answer to one
        beside = input_tokens if request is None or request.one_context else 0
        most = min(most, max(1, backend.window_tokens - beside))
    return most


def may_write_cache(price: Price, backend: Backend, request: CompletionRequest | None, *, marked: bool = False) -> bool:
    """Whether the backend may charge for prompt cache writes. Anthropic charges only if the client or the gateway
    (`marked`) asks for them; other providers decide themselves."""
    if price.cache_write_5m is None and price.cache_write_1h is None:
        return False
    if request is None or marked or not backend.facts.caches_marked_only:
        return True
    return request.asks_for_cache or request.has_escaped_letter


def may_be_media(price: Price, request: CompletionRequest | None) -> bool:
    """Whether the answer may contain sound or images that cost more than text. A model that draws may do so unasked in
    a chat; one that speaks does so only on request."""
    if (price.audio is None and price.image is None) or request is None:
        return False
    asked = request.body.get("modalities")
    if asked is not None:
        return bool(asked != ["text"])
    return price.image is not None or FACTS[request.dialect].opaque or "audio" in request.body


def can_be_capped(request: CompletionRequest | None) -> bool:
    """Whether a truncated answer is useful and the backend accepts a limit."""
    if request is None or not FACTS[request.dialect].limits_output or not _WHOLE_OR_NOTHING.isdisjoint(request.needs):
        return False
    form = request.body.get("response_format")
    return not (type(form) is dict and form.get("type") == "json_object")


def generous(expectation: Forecast, backend: Backend) -> int:
    """A cap, in tokens of one answer, that hardly any answer reaches."""
    return max(_GENEROUS * expectation.output_tokens, _LEAST_GENEROUS_TOKENS, floor(expectation, backend))


def floor(expectation: Forecast, backend: Backend) -> int:
    """The minimum cap in tokens of one answer: nine of ten answers were not longer, including reasoning."""
    if "reasoning" in backend.capabilities and not expectation.known:
        return max(expectation.output_tokens, _FIRST_REASONING_TOKENS)
    return max(expectation.output_tokens, LEAST_CAP_TOKENS)
