"""Registers this package as a client dialect."""

from __future__ import annotations

from typing import Any

from gateway.dialects.client import Client, Count, Shown
from gateway.dialects.gemini_generate.answer import GeminiWriter, reply
from gateway.dialects.gemini_generate.dialect import Endpoint, at, named_in
from gateway.dialects.gemini_generate.native import GeminiToGemini
from gateway.dialects.gemini_generate.request import EXTRAS, parse_counted
from gateway.dialects.parsed_as_chat import ParsedAsChat
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BadRequest

_ERROR = {"code": {"type": "integer", "minimum": 400}, "message": {"type": "string"}, "status": {"type": "string"}}

_FORMS = ("text/plain", "application/json")


class _AsChat(ParsedAsChat):
    """Translates to chat. Leaves out the fields that only Gemini knows. Raises BadRequest for a form of the answer that
    chat does not have (`responseMimeType`)."""

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        found = super().chat(request, plan)
        extras = found.pop(EXTRAS, {})
        form = extras.get("generationConfig", {}).get("responseMimeType", _FORMS[0])
        if form not in _FORMS:
            where = "generationConfig.responseMimeType"
            raise BadRequest(f"{where} must be one of {', '.join(_FORMS)} for this model.", param=where)
        return found


CLIENT = Client(
    Endpoint("", stream=False),
    at=at,
    shapes=named_in,
    native=GeminiToGemini(),
    translation=_AsChat(
        "gemini_generate",
        {
            "messages": "contents",
            "max_completion_tokens": "generationConfig.maxOutputTokens",
            "reasoning_effort": "generationConfig.thinkingConfig",
            "response_format": "generationConfig.responseSchema",
            "stop": "generationConfig.stopSequences",
            "n": "generationConfig.candidateCount",
        },
        reply,
        GeminiWriter,
    ),
    error_schema={
        "GoogleError": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "object", "required": [*_ERROR], "properties": _ERROR}},
        }
    },
    counts=(
        Count(  # below /v1 its path is also that of a model, so the other one is documented
            ("/v1beta/models/{model:path}:countTokens", "/v1/models/{model:path}:countTokens"),
            Shown("countGeminiTokens", "Tokens of a prompt in Gemini's form; free.", {"type": "object"}),
            parse=lambda body, headers, model: parse_counted(body, headers, model=model),
            answer=lambda tokens: {"totalTokens": tokens},
        ),
    ),
)
