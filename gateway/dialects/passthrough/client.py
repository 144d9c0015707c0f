"""Registers this package as a client dialect."""

from __future__ import annotations

from gateway.dialects.client import Client
from gateway.dialects.passthrough.dialect import ENDPOINTS, Endpoint
from gateway.dialects.passthrough.native import Passthrough

_PATHS = {prefix + path: path for path in ENDPOINTS for prefix in ("", "/v1")}

CLIENT = Client(
    Endpoint("/moderations"),
    {path: Endpoint(below) for path, below in _PATHS.items()},
    native=Passthrough(),
    permissions={path: ENDPOINTS[below] for path, below in _PATHS.items()},
)
