"""Kinds `openai` and `local`: servers with OpenAI's API."""

from __future__ import annotations

from gateway.backends.providers.base import Upstream
from gateway.backends.providers.over_http import OverHttp
from gateway.domain.request import DialectName


class OpenAI(OverHttp):
    """A server with OpenAI's API."""

    dialect: DialectName = "openai_chat"

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """Seconds that the header `retry-after-ms` states, or else `retry-after`; None if neither header is present.
        `retry-after-ms` is read first, because it is more precise."""
        value = upstream.header(b"retry-after-ms")
        if value is not None and value.isdigit():  # not `int`, because `int` refuses numbers with thousands of digits
            return float(value) / 1000
        return super().retry_after_s(upstream)


class Local(OpenAI):
    """A model server on this machine with OpenAI's API."""
