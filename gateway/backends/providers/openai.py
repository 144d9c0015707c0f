"""Kinds `openai` and `local`: servers with OpenAI's API."""

from __future__ import annotations

import re

from gateway.backends.providers.base import Upstream
from gateway.backends.providers.over_http import OverHttp
from gateway.domain.request import DialectName

_SECONDS = re.compile(rb"\d{1,5}(?:\.\d{1,9})?")


class OpenAI(OverHttp):
    """A server with OpenAI's API."""

    dialect: DialectName = "openai_chat"

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """Seconds for which the backend asks not to be called; None if no header states them. The headers are, in this
        order: `retry-after-ms`, which is more precise; `retry-after`; `x-ratelimit-reset`."""
        value = upstream.header(b"retry-after-ms")
        if value is not None and value.isdigit():  # not `int`, because `int` refuses numbers with thousands of digits
            return float(value) / 1000
        asked = super().retry_after_s(upstream)
        if asked is None and (reset := upstream.header(b"x-ratelimit-reset")) and _SECONDS.fullmatch(reset):
            return float(reset)  # Together's
        return asked


class Local(OpenAI):
    """A model server on this machine with OpenAI's API."""
