"""Reads plain logs: one JSON object per call, with a chat request and the usage of its answer."""

from __future__ import annotations

from typing import Any

from gateway.cli.simulation.call import LogError, LoggedCall, Object, moment, pico, reported


def is_row(row: Object) -> bool:
    return isinstance(_request(row).get("messages"), list)


def read(row: Object) -> LoggedCall:
    """Read the call in `{"messages": […], "model": …, "usage": {…}}` or in `{"request": {…}, "response": {…}}`.
    Optional fields: `at` (Unix seconds or ISO), `session`, `usd`. Raises LogError."""
    request, response = _request(row), row.get("response")
    answer: dict[str, Any] = response if isinstance(response, dict) else {}
    usage = reported(answer.get("usage") or row.get("usage"))
    model = request.get("model") or answer.get("model")
    if usage is None:
        raise LogError("the call has no usage: add the provider's `usage` object")
    if not isinstance(model, str):
        raise LogError("the call has no model: add `model`")
    at = row.get("at") or answer.get("created") or 0
    return LoggedCall(
        str(row.get("id") or answer.get("id") or ""),
        moment(at),
        model,
        usage,
        pico(row.get("usd")),
        str(row.get("session") or ""),
        "anthropic_messages" if "system" in request or answer.get("type") == "message" else "openai_chat",
        request["messages"],
        len(request["messages"]),
        {name: value for name, value in request.items() if name in _ASKED},
    )


def _request(row: Object) -> dict[str, Any]:
    request = row.get("request", row)
    return request if isinstance(request, dict) else {}


_ASKED = (
    "system",
    "tools",
    "tool_choice",
    "response_format",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "n",
)
