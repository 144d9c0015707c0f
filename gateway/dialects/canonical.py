"""The canonical body of a request. Two requests with equal canonical bodies may share an answer."""

from __future__ import annotations

from typing import Any

from gateway.domain.request import CompletionRequest

WITHOUT_INFLUENCE = frozenset(
    {
        # transport of the answer
        "stream",
        "stream_options",
        # identity of the caller; billing and routing at the provider
        "user",
        "metadata",
        "safety_identifier",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
"""Names of fields that do not affect the answer. Every unknown field is assumed to affect the answer."""


def canonical(request: CompletionRequest) -> dict[str, Any]:
    """The body without null values and without fields that do not affect the answer. The result may be `request.body`
    itself and not a copy."""
    body = request.body
    if WITHOUT_INFLUENCE.isdisjoint(body) and None not in body.values():
        return body
    return {name: value for name, value in body.items() if value is not None and name not in WITHOUT_INFLUENCE}
