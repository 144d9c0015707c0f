"""Backends that speak Anthropic's messages dialect."""

from __future__ import annotations

from gateway.backends.over_http import OverHttp
from gateway.domain.request import DialectName


class Anthropic(OverHttp):
    dialect: DialectName = "anthropic_messages"
