"""Registers this package as a client dialect."""

from __future__ import annotations

from typing import Any

from gateway.dialects.client import Client, Shown, View
from gateway.dialects.ollama_chat import dialect, models
from gateway.dialects.ollama_chat.answer import OllamaWriter, reply
from gateway.dialects.ollama_chat.native import OllamaToOllama
from gateway.dialects.ollama_chat.request import EXTRAS
from gateway.dialects.parsed_as_chat import ParsedAsChat
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan

PATH = "/api/chat"
_NAMED = {"type": "object", "properties": {"model": {"type": "string", "minLength": 1}}, "required": ["model"]}
_CHAT = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        **_NAMED["properties"],  # type: ignore[dict-item]
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "stream": {"type": "boolean", "default": True},
    },
}


class _AsChat(ParsedAsChat):
    """Translates to chat, and leaves out the fields that only Ollama's servers know."""

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        found = super().chat(request, plan)
        found.pop(EXTRAS, None)
        return found


CLIENT = Client(
    dialect,
    {PATH: dialect},
    shapes=lambda path: dialect if path.startswith("/api/") else None,
    native=OllamaToOllama(),
    translation=_AsChat(
        "ollama_chat",
        {
            "max_completion_tokens": "options.num_predict",
            "reasoning_effort": "think",
            "response_format": "format",
            "stop": "options.stop",
        },
        reply,
        OllamaWriter,
    ),
    shown={PATH: Shown("createOllamaChat", "Ollama's chat, streamed unless `stream` is false.", _CHAT)},
    error_schema={
        "OllamaError": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    },
    views=(
        View("GET", "/api/tags", Shown("listOllamaModels", "Names that this key may ask for.", {}), models.tags),
        View("POST", "/api/show", Shown("showOllamaModel", "Abilities of one of these names.", _NAMED), models.show),
        View("GET", "/api/version", Shown("getOllamaVersion", "The version of Ollama's API.", {}), models.version),
    ),
)
