"""Triggers incidents in PagerDuty through its Events API v2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import orjson

from gateway.alerts.delivery.posting import Poster
from gateway.alerts.delivery.sender import Destination
from gateway.settings.environment import pagerduty_url

_MOST_SUMMARY, _MOST_DEDUP_KEY = 1024, 255
"""Maximum characters that the Events API accepts in `summary` and in `dedup_key`."""


class PagerDuty:
    """Sends alerts to PagerDuty. `url_of`: returns the address of the Events API; it is called for every alert."""

    def __init__(self, poster: Poster, *, url_of: Callable[[], str] = pagerduty_url) -> None:
        self._poster, self._url_of = poster, url_of

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        body = orjson.dumps(event(to.address, id, orjson.loads(payload)))
        return await self._poster.post(self._url_of(), body, {})


def event(routing_key: str, id: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The event for one alert. Its deduplication key is the alert's id, so a repeated alert does not open a second
    incident."""
    key = str(payload.get("id", id))
    return {
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": key if len(key) <= _MOST_DEDUP_KEY else sha256(key.encode()).hexdigest(),
        "client": "Thriftgate",
        "payload": {
            "summary": str(payload["text"])[:_MOST_SUMMARY],
            "source": "thriftgate",
            "severity": payload.get("severity", "info"),
            "component": payload.get("team", ""),
            "class": payload.get("kind", ""),
            "custom_details": dict(payload),
            **({"timestamp": payload["at"]} if "at" in payload else {}),
        },
    }
