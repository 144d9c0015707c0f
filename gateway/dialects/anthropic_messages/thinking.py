"""Thinking options of a request, and signatures of thinking blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.domain.body_scan import UNSIGNED

_CARRIED = f"{UNSIGNED}:"
"""The beginning of a signature that contains Google's signature of the call after the block."""

_BUDGETS = ((8192, "high"), (2048, "medium"))
"""(Minimum thinking budget in tokens, effort). The smallest budget that Anthropic accepts is 1024."""
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Effort → the nearest effort that all servers with a reasoning effort accept."""


def carrier(signature: str) -> dict[str, Any]:
    """A thinking block without text that contains a signature. The `signature` is Google's, and belongs to the call
    after the block. The client sends the block back with its next request."""
    return {"type": "thinking", "thinking": "", "signature": _CARRIED + signature}


def carried(block: Mapping[str, Any]) -> str:
    """Google's signature in a block that `carrier` made; empty for other blocks."""
    signature = block.get("signature")
    return signature.removeprefix(_CARRIED) if type(signature) is str and signature.startswith(_CARRIED) else ""


def is_unsigned(block: Mapping[str, Any]) -> bool:
    """Whether the block has the gateway's marker in place of a signature by Anthropic."""
    signature = block.get("signature")
    return type(signature) is str and signature.startswith(UNSIGNED)


def returns(body: Mapping[str, Any]) -> bool:
    """Whether the client expects thinking blocks, and so will send them back. The blocks may have no text."""
    return (body.get("thinking") or {}).get("type") not in (None, "disabled")


def effort(body: Mapping[str, Any]) -> str | None:
    """The effort of the request as OpenAI's `reasoning_effort`; None: the model's default. Also None if thinking is
    disabled, because most models reject `none`."""
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "disabled":
        return None
    wanted = (body.get("output_config") or {}).get("effort")
    if type(wanted) is str:
        return _EFFORTS.get(wanted)
    if thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    most = budget if type(budget) is int else 0
    return next((name for least, name in _BUDGETS if most >= least), "low")


def shown(body: Mapping[str, Any]) -> bool:
    """Whether thinking is sent to the client. Only a client that asked for thinking gets it; other clients would take
    the thinking for the answer."""
    return returns(body) and body["thinking"].get("display") != "omitted"
