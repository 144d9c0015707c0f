"""Reads LiteLLM's spend logs: rows of the table `LiteLLM_SpendLogs`, or of the endpoint `/spend/logs`."""

from __future__ import annotations

from typing import Any

from gateway.cli.simulation.call import LoggedCall, Object, decoded, moment, pico, reported, tokens
from gateway.domain.money.usage import Usage


def is_row(row: Object) -> bool:
    return "spend" in row and "startTime" in row


def read(row: Object) -> LoggedCall | None:
    """Read the call of a row; None if the call failed or was not a chat. Raises LogError."""
    kind = str(row.get("call_type") or "acompletion")
    if row.get("status") == "failure" or not kind.endswith(("completion", "anthropic_messages")):
        return None
    asked = decoded(row.get("proxy_server_request"))
    body: dict[str, Any] = asked if isinstance(asked, dict) else {}
    messages = decoded(row.get("messages")) or body.get("messages")
    messages = messages if isinstance(messages, list) else []
    return LoggedCall(
        str(row.get("request_id") or ""),
        moment(row["startTime"]),
        str(row.get("model") or row.get("model_group") or ""),
        _usage(row),
        pico(row["spend"]),
        str(row.get("session_id") or ""),
        "anthropic_messages" if kind.endswith("anthropic_messages") else "openai_chat",
        messages,
        len(messages),
        {name: value for name, value in body.items() if name not in ("messages", "model", "stream", "metadata")},
        from_cache=str(row.get("cache_hit")).lower() == "true",
    )


def _usage(row: Object) -> Usage:
    """The usage that the provider reported. If the row does not contain it, the usage is made from the row's sums of
    input and output tokens."""
    metadata = decoded(row.get("metadata"))
    if isinstance(metadata, dict) and (found := reported(metadata.get("usage_object"))) is not None:
        return found
    return Usage(tokens(row.get("prompt_tokens")), output_tokens=tokens(row.get("completion_tokens")))
