"""Converts Converse's answers to Anthropic's: blocks, stop reasons, usage."""

from __future__ import annotations

from typing import Any

from gateway.errors import BackendGarbage, FaultyAnswer

Block = dict[str, Any]

_STOPS = {
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
    "malformed_model_output": "end_turn",
    "malformed_tool_use": "end_turn",
}
"""Converse's stop reason → Anthropic's stop reason. All other stop reasons have the same names in both."""
_FAULTS = frozenset({"malformed_model_output", "malformed_tool_use"})
_COUNTS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}


def stop_reason(reason: Any) -> Any:
    return _STOPS.get(reason, reason) if type(reason) is str else None


def fault(reason: Any) -> FaultyAnswer | None:
    """The error for an answer without content. `reason`: the reason why the answer ended. None if this reason explains
    why the answer is empty."""
    if type(reason) is not str or reason not in _FAULTS:
        return None
    return FaultyAnswer(f"The model ended without an answer ({reason}).")


def usage(given: Any, tier: Any = None) -> dict[str, Any] | None:
    """Convert Converse's usage object to Anthropic's. None if `given` contains no counts. `tier`: value of
    `serviceTier`.

    Cached tokens are not part of the input tokens.
    """
    if type(given) is not dict:
        return None
    found: dict[str, Any] = {name: given[theirs] for theirs, name in _COUNTS.items() if theirs in given}
    details = given.get("cacheDetails")
    long = [each for each in details if type(each) is dict and each.get("ttl") == "1h"] if type(details) is list else []
    if long:
        found["cache_creation"] = {"ephemeral_1h_input_tokens": sum(each.get("inputTokens") or 0 for each in long)}
    kind = tier.get("type") if type(tier) is dict else None
    return {**found, "service_tier": kind} if found and kind not in (None, "default", "reserved") else found or None


def message(reply: dict[str, Any]) -> dict[str, Any]:
    """A whole answer as a message in Anthropic's format. Raises BackendGarbage if `reply` is not an answer, and
    FaultyAnswer if the answer has no content and ended with a failure of the model."""
    output = reply.get("output")
    received = output.get("message") if type(output) is dict else None
    content = received.get("content") if type(received) is dict else None
    if type(content) is not list:
        raise BackendGarbage("The backend answered with JSON that is not a Converse answer.")
    try:
        blocks = [block for each in content if (block := _block(each))]
    except (LookupError, TypeError, AttributeError) as error:
        raise BackendGarbage("The backend answered with a content block that is not one of Converse's.") from error
    if not any(map(_is_content, blocks)) and (failure := fault(reply.get("stopReason"))):
        raise failure
    return {
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "stop_reason": stop_reason(reply.get("stopReason")),
        "usage": usage(reply.get("usage"), reply.get("serviceTier")),
    }


def _is_content(block: Block) -> bool:
    """Whether a block, in Anthropic's format, belongs to the answer itself: a call, or a text that is not empty."""
    return block["type"] == "tool_use" or bool(block.get("text"))


def _block(block: Block) -> Block | None:
    """The block in Anthropic's format. None if chat cannot represent this kind of block."""
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    if call := block.get("toolUse"):
        return {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call.get("input") or {}}
    if thought := block.get("reasoningContent"):
        if "redactedContent" in thought:
            return {"type": "redacted_thinking", "data": thought["redactedContent"]}
        text = thought["reasoningText"]
        return {"type": "thinking", "thinking": text.get("text") or "", "signature": text.get("signature") or ""}
    if cited := block.get("citationsContent"):
        return {"type": "text", "text": "".join(part.get("text") or "" for part in cited.get("content") or ())}
    return None
