"""Kinds `openai` and `local`: servers with OpenAI's API."""

from __future__ import annotations

from gateway.backends.providers.base import Upstream
from gateway.backends.providers.over_http import OverHttp
from gateway.domain.request import DialectName


class OpenAI(OverHttp):
    """A server with OpenAI's API."""

    dialect: DialectName = "openai_chat"

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """Seconds in the header `retry-after-ms`, which is more precise, or else in the header `retry-after`. None if
        both headers are missing."""
        value = upstream.header(b"retry-after-ms")
        if value is not None and value.isdigit():  # not `int`, because `int` refuses numbers with thousands of digits
            return float(value) / 1000
        return super().retry_after_s(upstream)


class Local(OpenAI):
    """A model server on this machine with OpenAI's API."""
