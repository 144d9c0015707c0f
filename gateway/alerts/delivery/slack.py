"""Formats alerts for incoming webhooks of Slack and of compatible servers (Mattermost, Rocket.Chat, Discord)."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.alerts.delivery.posting import Poster
from gateway.alerts.delivery.sender import Destination, title

_SIGNS = {"critical": ":rotating_light:", "warning": ":warning:", "info": ":information_source:"}
_MOST_CHARACTERS = 2900
"""Maximum characters of a section's text. Slack's limit is 3000."""


class Slack:
    def __init__(self, poster: Poster) -> None:
        self._poster = poster

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        body = orjson.dumps(message(orjson.loads(payload)))
        return await self._poster.post(to.address, body, {"idempotency-key": id})


def message(payload: dict[str, Any]) -> dict[str, Any]:
    """The message for Slack. Notifications and simple clients show its `text`; other clients show its `blocks`."""
    severity = str(payload.get("severity", "info"))
    text = _escaped(str(payload["text"]))[:_MOST_CHARACTERS]
    facts = [
        f"*{name}* {_escaped(str(payload[name]))}" for name in ("team", "kind", "severity", "at") if name in payload
    ]
    return {
        "text": f"{_SIGNS.get(severity, '')} {text}".strip(),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": _title(payload), "emoji": True}},
            {"type": "section", "text": {"type": "mrkdwn", "text": text}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": "  ".join(facts)}]},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": f"`{_escaped(str(payload.get('id', '')))}`"}]},
        ],
    }


def _title(payload: dict[str, Any]) -> str:
    sign = _SIGNS.get(str(payload.get("severity")), "")
    return f"{sign} {payload.get('team', '')}: {title(payload)}".strip()[:150]


def _escaped(text: str) -> str:
    """The `text` with the characters &, < and > escaped, because Slack interprets them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
