"""Reads exports of Langfuse: observations of type GENERATION, exported from its page, its public API, or to blob
storage."""

from __future__ import annotations

import re
from typing import Any

from gateway.cli.simulation.call import LoggedCall, Object, decoded, moment, pico, tokens
from gateway.domain.money.usage import Usage

_PARAMETERS = ("temperature", "max_tokens", "n")
_CACHED = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens")
_WRITTEN = ("input_cache_creation", "cache_creation_input_tokens")


def is_row(row: Object) -> bool:
    return _camel(row).keys() >= {"startTime", "traceId"}


def _camel(row: Object) -> Object:
    """Rename the fields of a row to the names of Langfuse's API. For example, an export to blob storage has
    `start_time` where the API has `startTime`."""
    return {re.sub("_([a-z])", lambda found: found[1].upper(), name): value for name, value in row.items()}


def read(row: Object) -> LoggedCall | None:
    """Read the call of an observation; None if the observation is not a call of a model. Raises LogError."""
    row = _camel(row)
    model = row.get("model") or row.get("providedModelName")
    if row.get("type", "GENERATION") != "GENERATION" or not model or row.get("level") == "ERROR":
        return None
    body = _body(decoded(row.get("input")))
    messages = body.pop("messages", [])
    parameters = decoded(row.get("modelParameters"))
    known = parameters if isinstance(parameters, dict) else {}
    asked = {
        name: known[name] for name in ("temperature", "max_tokens", "n") if isinstance(known.get(name), int | float)
    }
    costs = decoded(row.get("costDetails"))
    cost = costs.get("total") if isinstance(costs, dict) else None
    return LoggedCall(
        str(row.get("id") or ""),
        moment(row["startTime"]),
        str(model),
        _usage(row),
        pico(cost if cost is not None else row.get("calculatedTotalCost") or row.get("totalCost")),
        str(row.get("sessionId") or row.get("traceId")),
        messages=messages,
        count=len(messages),
        fields={**asked, **body},
    )


def _body(given: Any) -> dict[str, Any]:
    """The fields of the request. Applications log the messages, an object with messages and tools, or only the
    prompt."""
    if isinstance(given, str) and given:
        return {"messages": [{"role": "user", "content": given}]}
    if isinstance(given, list):
        return {"messages": given}
    if isinstance(given, dict) and isinstance(given.get("messages"), list):
        return {name: given[name] for name in ("messages", "tools", "response_format") if given.get(name)}
    return {}


def _usage(row: Object) -> Usage:
    """The usage in an observation. If Langfuse knows the cached tokens, its `input` does not include them."""
    details = decoded(row.get("usageDetails"))
    if isinstance(details, dict) and "input" in details:
        return Usage(
            tokens(details["input"]),
            sum(tokens(details.get(name)) for name in _CACHED),
            sum(tokens(details.get(name)) for name in _WRITTEN),
            output_tokens=tokens(details.get("output")),
        )
    sums = decoded(row.get("usage"))
    if not isinstance(sums, dict):
        sums = {"input": row.get("inputUsage", row.get("promptTokens")), "output": row.get("outputUsage")}
        sums["output"] = sums["output"] if sums["output"] is not None else row.get("completionTokens")
    return Usage(tokens(sums.get("input")), output_tokens=tokens(sums.get("output")))
