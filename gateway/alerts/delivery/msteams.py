"""Sends alerts to Microsoft Teams as Adaptive Cards. The receiver is a Teams workflow with a webhook as its trigger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.alerts.delivery.posting import Poster
from gateway.alerts.delivery.sender import Destination, title

_COLOURS = {"critical": "Attention", "warning": "Warning", "info": "Accent"}
_MOST_CHARACTERS = 4000
"""Maximum characters of an alert's text. A Teams message may have 28 KB, and a character up to 4 bytes."""


class MsTeams:
    def __init__(self, poster: Poster) -> None:
        self._poster = poster

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        body = orjson.dumps(message(orjson.loads(payload)))
        return await self._poster.post(to.address, body, {"idempotency-key": id})


def message(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the request: one card. The alert's text is sent as text runs, because Teams does not interpret markup
    in text runs."""
    facts = [f"{name}: {payload[name]}" for name in ("team", "kind", "severity", "at", "id") if name in payload]
    head = {"size": "Large", "weight": "Bolder", "color": _COLOURS.get(str(payload.get("severity")), "Default")}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            _line(f"{payload.get('team', '')}: {title(payload)}", head),
            _line(str(payload["text"])[:_MOST_CHARACTERS], {}),
            *(_line(fact, {"size": "Small", "isSubtle": True}) for fact in facts),
        ],
        "msteams": {"width": "Full"},
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def _line(text: str, style: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}
