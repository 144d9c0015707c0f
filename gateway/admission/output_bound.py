"""Computes the maximum output tokens of one call, and whether the output may be capped if the money does not pay
for it.
"""

from __future__ import annotations

from gateway.admission.output_forecast import Forecast
from gateway.dialects.anthropic_messages import models
from gateway.dialects.facts import FACTS
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.request import MEDIA_MOST_TOKENS, CompletionRequest

ASSUMED_MOST_TOKENS = 131_072
"""Maximum output tokens of an answer if the client, the backend and the backend's window set no limit. No present model
writes more."""
_GENEROUS = 4
"""Factor on the learned quantile of output tokens. A cap of this height hardly ever ends an answer."""
_LEAST_GENEROUS_TOKENS = 1024
LEAST_CAP_TOKENS = 256
"""Minimum number of tokens to which an answer is capped, unless the policy says `truncate`."""
_FIRST_REASONING_TOKENS = 4096
"""Minimum number of tokens to which an answer of a backend that reasons is capped, until the backend's usual amount of
reasoning is known."""
_LEAST_INPUT_PERCENT = 75
"""Lowest plausible number of input tokens that a backend counts, in percent of the gateway's count. The gateway's
estimate is up to a quarter higher than an exact count, for example of Markdown and of tools."""
_WHOLE_OR_NOTHING = frozenset({"tools", "json_schema"})
"""Capabilities with which a truncated answer is useless: half a tool call, or half a JSON document."""


def most_output(backend: Backend, request: CompletionRequest | None, input_tokens: int) -> int:
    """The maximum output tokens of one answer. This is the lowest of three limits: the client's limit (an assumed one
    if the client sets none), the backend's limit, and the rest of the backend's context window.

    `input_tokens`: the gateway's count of the input, or of a part of it. The backend's count is assumed to be lower,
    because the more input it counts, the less of the window is left to the answer.
    """
    most, known = None if request is None else request.max_output_tokens, backend.max_output_tokens
    if most is None:
        if request is not None and FACTS[request.dialect].opaque:
            most = MEDIA_MOST_TOKENS
        elif backend.facts.requires_max_tokens and (request is None or request.dialect != "anthropic_messages"):
            most = models.MOST_USUAL_OUTPUT  # the gateway must send a limit to this API, and it sends no larger limit
        else:
            most = ASSUMED_MOST_TOKENS
    if known is not None and known < most:
        most = known
    if backend.window_tokens:
        # each prompt has a window of its own, so the input of all prompts does not limit the answer to one prompt
        beside = input_tokens * _LEAST_INPUT_PERCENT // 100 if request is None or request.one_context else 0
        most = min(most, max(1, backend.window_tokens - beside))
    return most


def may_write_cache(price: Price, backend: Backend, request: CompletionRequest | None, *, marked: bool = False) -> bool:
    """Whether the backend may charge for writing the prompt to its cache. `marked`: whether the gateway requests cache
    writes."""
    if price.cache_write_5m is None and price.cache_write_1h is None:
        return False
    if request is None or marked or not backend.facts.caches_marked_only:
        return True
    return request.asks_for_cache or request.has_escaped_letter


def may_be_media(price: Price, request: CompletionRequest | None) -> bool:
    """Whether the answer may contain sound or images, which cost more than text."""
    if (price.audio is None and price.image is None) or request is None:
        return False
    asked = request.body.get("modalities")
    if asked is not None:
        return bool(asked != ["text"])
    # A model that generates images may do so unasked; one that generates speech does not.
    return price.image is not None or FACTS[request.dialect].opaque or "audio" in request.body


def can_be_capped(request: CompletionRequest | None) -> bool:
    """Whether a truncated answer is useful, and the backend accepts an output limit."""
    if request is None or not FACTS[request.dialect].limits_output or not _WHOLE_OR_NOTHING.isdisjoint(request.needs):
        return False
    form = request.body.get("response_format")
    return not (type(form) is dict and form.get("type") == "json_object")


def generous(expectation: Forecast, backend: Backend) -> int:
    """An output limit for one answer, in tokens, that hardly any answer exceeds. Used as a cap."""
    return max(_GENEROUS * expectation.output_tokens, _LEAST_GENEROUS_TOKENS, floor(expectation, backend))


def floor(expectation: Forecast, backend: Backend) -> int:
    """The lowest limit that may be set for one answer, in output tokens. Nine of ten past answers, including their
    reasoning, were not longer."""
    if "reasoning" in backend.capabilities and not expectation.known:
        return max(expectation.output_tokens, _FIRST_REASONING_TOKENS)
    return max(expectation.output_tokens, LEAST_CAP_TOKENS)
