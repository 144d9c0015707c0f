"""The common part of translations for client dialects whose parsers already return a chat request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.dialects.openai_chat.native import kept_messages
from gateway.dialects.via_chat import Writer
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan


@dataclass(slots=True)
class ParsedAsChat:
    """Implements `Translation`. The parser has already converted the request to a chat request."""

    client: DialectName
    fields: Mapping[str, str]
    """Name of a chat field → name of the client's field, for error messages."""
    reply: Callable[[CompletionRequest, dict[str, Any], Usage | None], dict[str, Any]]
    """Makes the whole answer from a chat completion."""
    writer: Callable[[CompletionRequest], Writer]

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        body = {name: value for name, value in request.body.items() if name != "stream_options"}
        return {**body, "messages": [message for _, message in kept_messages(request, plan)]}

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        return orjson.dumps(self.reply(request, completion, usage))
