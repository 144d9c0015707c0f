"""Sends alerts through apprise, an optional library that reaches about 150 further services."""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from typing import Any

import orjson

from gateway.alerts.delivery.posting import TIMEOUT_S, Poster
from gateway.alerts.delivery.sender import Destination, title


class ViaApprise:
    def __init__(self, poster: Poster | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """`poster` is not used, because apprise has its own HTTP client."""
        self._timeout_s = timeout_s

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        alert = orjson.loads(payload)
        try:
            async with asyncio.timeout(self._timeout_s):  # apprise's own time limits are shorter
                return await asyncio.to_thread(_notify, to, alert)
        except ImportError:
            return False, "this kind of receiver needs apprise: pip install 'thriftgate[apprise]'"
        except TimeoutError:
            return False, f"no answer within {self._timeout_s:g} s"
        except Exception as error:  # each service may raise other errors, and an error's text may contain the address
            return False, f"apprise failed ({type(error).__name__})"


def _notify(to: Destination, alert: dict[str, Any]) -> tuple[bool, str]:
    """Send `alert` through apprise. Returns (whether apprise delivered the alert, the reply). Raises ImportError if
    apprise is not installed."""
    apprise = import_module("apprise")
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its messages contain addresses
    # `instantiate` accepts the address of one service only, no list of addresses, and reads no configuration files.
    asset = apprise.AppriseAsset(app_id="Thriftgate", http_redirects=False, async_mode=False)
    service = apprise.Apprise.instantiate(to.address, asset=asset)
    if service is None:
        return False, f"{to.reference} is no address of a service that apprise knows"
    to_one = apprise.Apprise(asset=asset)
    to_one.add(service)
    severity = str(alert.get("severity", "info"))
    accepted = to_one.notify(
        title=f"{severity}: {alert.get('team', '')}, {title(alert)}",
        body=f"{alert['text']}\n\n{alert.get('id', '')}",
        notify_type={"critical": apprise.NotifyType.FAILURE, "warning": apprise.NotifyType.WARNING}.get(
            severity, apprise.NotifyType.INFO
        ),
        body_format=apprise.NotifyFormat.TEXT,  # services with markup show a team's text as it is
    )
    return (True, "accepted") if accepted else (False, f"{to.reference}: apprise could not deliver")
