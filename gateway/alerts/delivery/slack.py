"""Formats alerts for incoming webhooks of Slack and of compatible servers (Mattermost, Rocket.Chat, Discord)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from gateway.alerts.delivery.posting import Poster
from gateway.settings.environment import receiver

_SIGNS = {"critical": ":rotating_light:", "warning": ":warning:", "info": ":information_source:"}
_MOST_CHARACTERS = 2900
"""Maximum characters of a section's text. Slack's limit is 3000."""


class Slack:
    """Delivers to Slack webhooks. `url_of` returns the URL for a policy's `env:NAME`. It is called for every alert, so
    a changed URL applies at once."""

    def __init__(self, poster: Poster, *, url_of: Callable[[str], str] = receiver) -> None:
        self._poster, self._url_of = poster, url_of

    async def deliver(self, reference: str, id: str, payload: bytes) -> tuple[bool, str]:
        url = await asyncio.to_thread(self._url_of, reference)
        if not url:
            return False, f"{reference} is not set in the gateway's environment"
        return await self._poster.post(url, orjson.dumps(message(orjson.loads(payload))), {"idempotency-key": id})


def message(payload: dict[str, Any]) -> dict[str, Any]:
    """The message: `text` for notifications and simple clients, `blocks` for others."""
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
    what = str(payload.get("threshold") or payload.get("kind", "alert")).replace("_", " ")
    return f"{_SIGNS.get(str(payload.get('severity')), '')} {payload.get('team', '')}: {what}".strip()[:150]


def _escaped(text: str) -> str:
    """`text` with the three characters escaped that have a special meaning in Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
