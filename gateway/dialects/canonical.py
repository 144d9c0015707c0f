"""The canonical body of a request: equal bodies deserve equal answers."""

from __future__ import annotations

from typing import Any

from gateway.domain.request import CompletionRequest

WITHOUT_INFLUENCE = frozenset(
    {
        # how the answer travels
        "stream",
        "stream_options",
        # who asked, and how the provider books or routes it
        "user",
        "metadata",
        "safety_identifier",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
"""Fields that do not change what is answered. Fields nobody has heard of do."""


def canonical(request: CompletionRequest) -> dict[str, Any]:
    """The body without what has no influence; null says as little as an absent field. Not a copy."""
    body = request.body
    if WITHOUT_INFLUENCE.isdisjoint(body) and None not in body.values():
        return body
    return {name: value for name, value in body.items() if value is not None and name not in WITHOUT_INFLUENCE}
