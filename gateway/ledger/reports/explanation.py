"""Explains one request in plain English: the choice of the backend, the decision of the cache, the trimming and the
cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

from gateway.domain.units import cents

_CACHE = {
    "exact": "Exact hit: the cache had the answer to an identical request.",
    "semantic": "Semantic hit: the cache had the answer to a question with the same meaning.",
    "join": "Joined: it got the answer of an equal request that was in progress.",
    "miss": "The cache had no answer that fits.",
    "bypass": "The cache was not asked, because the request said so.",
    "off": "The cache was not asked: the policy switches it off, or such requests are not cached.",
}
_CLASSES = {
    "cached_input": "cache read",
    "cache_write_5m": "cache write",
    "cache_write_1h": "cache write for 1 hour",
    "audio_input": "audio in",
    "image_input": "images in",
    "audio": "audio out",
    "image": "images out",
}
_FAILURES = {
    "backend_unreachable": "no connection, or it closed before the answer",
    "backend_timeout": "no answer within its timeout",
    "backend_garbage": "the answer could not be read",
    "backend_failed": "it answered with an error",
    "backend_overloaded": "it is overloaded",
    "backend_rate_limited": "its rate limit is reached",
    "backend_refused": "it refused the request",
    "stream_broken": "the stream broke off",
}
"""Error code of an attempt → the reason in words."""


def sentences(flight: Mapping[str, Any], zone: tzinfo) -> Iterator[str]:
    """Yield lines of text that explain a request, each with one or two sentences. `zone`: the time zone of the shown
    times. `flight`: a flight record. If the ledger has the request, the flight record must have the field `why`, the
    result of `reports.why`."""
    at = datetime.fromtimestamp(flight["at"], zone).strftime("%Y-%m-%d %H:%M:%S %Z")
    yield f"{flight['id']}: team {flight['team']}, key {flight['key']}, {at}."
    yield _outcome(flight)
    yield _cache(flight)
    yield from _route(flight)
    yield from flight.get("why", ())
    yield from _attempts(flight)
    yield from _context_and_budget(flight)
    yield _cost(flight)
    if flight["degraded"]:
        yield f"Parts that were out of order: {', '.join(flight['degraded'])}."
    if flight["source"] == "ledger" and flight["cache"] not in ("exact", "semantic", "join"):
        yield "From the ledger: the candidates of its route are kept for an hour, and only where there was a choice."


def _outcome(flight: Mapping[str, Any]) -> str:
    asked = f"It asked for {flight['model']}{', as a stream' if flight['stream'] else ''}"
    took = "" if flight["duration_ms"] is None else f" after {flight['duration_ms']:,.0f} ms"
    if flight["error"]:
        why = next((note["why"] for note in reversed(flight["notes"]) if "why" in note), "")
        return f"{asked}, and ended with {flight['error']}{took}.{' ' + why if why else ''}"
    first = "" if flight["first_byte_ms"] is None else f" (first byte {flight['first_byte_ms']:,.0f} ms)"
    return f"{asked}, and was answered{took}{first}."


def _cache(flight: Mapping[str, Any]) -> str:
    text = _CACHE.get(flight["cache"], f"Cache: {flight['cache']}.")
    if flight["cache_score"] is not None:
        text += f" The verifier's score was {flight['cache_score']:.2f}."
    if flight["saved_usd"] and flight["cache"] in ("exact", "semantic", "join"):
        text += f" That saved {_money(flight['saved_usd'])}."
    return text


def _route(flight: Mapping[str, Any]) -> Iterator[str]:
    route = flight["route"]
    if flight["difficulty"] is not None:
        unsure = ", outside the grader's domain" if flight["abstained"] else ""
        yield f"Difficulty {flight['difficulty']:.2f} of 1{unsure}."
    if route is None:
        return
    order = ", then ".join(route["order"])
    yield f"Backends in order: {order}. Why: {route['reason']}."
    for one in route["considered"]:
        cost = "price unknown" if one["cost_usd"] is None else f"{_money(one['cost_usd'])} expected"
        fit = "" if one["adequacy"] is None else f", {one['adequacy']:.0%} likely to be as good as the baseline"
        yield f"  {one['backend']}: " + (f"excluded, {one['excluded']}" if one["excluded"] else f"{cost}{fit}")
    if route["pressure"]:
        yield f"Spend is ahead of plan ({route['pressure']:.0%}), so quality {route['quality']:.1%} was enough."
    yield from (f"  {each}." for each in route["what_if"] or ())


def _attempts(flight: Mapping[str, Any]) -> Iterator[str]:
    for number, one in enumerate(flight["attempts"], 1):
        kind = f" ({one['kind']})" if one["kind"] else ""
        if one["outcome"] == "failed":
            yield f"Call {number}: {one['backend']}{kind} failed: {_failure(one)}."
            continue
        cached = f" ({one['cached_tokens']:,} from its prompt cache)" if one["cached_tokens"] else ""
        counted = ", counted by the gateway" if one["estimated"] else ""
        yield (
            f"Call {number}: {one['backend']}{kind}, {one['outcome']}: {one['input_tokens']:,} tokens in{cached}, "
            f"{one['output_tokens']:,} out{counted}, {_money(one['cost_usd'])}."
        )
        if prices := _prices(one.get("usd_per_million_tokens")):
            yield f"  its prices per million tokens: {prices}"
        if one["unpriced"]:
            yield f"  without a price: {one['unpriced']}"
        if one["outcome"] == "escalated":
            sure = "" if one["confidence"] is None else f" (confidence {one['confidence']:.0%})"
            yield f"  {one['backend']} was not sure enough{sure}, so a stronger backend was asked."


def _prices(prices: Mapping[str, str] | None) -> str:
    """The unit prices as text: `input $0.15, output $0.60, cache read $0.075`. Empty if no price is known."""
    return ", ".join(f"{_CLASSES.get(name, name)} {_money(usd)}" for name, usd in (prices or {}).items())


def _failure(attempt: Mapping[str, Any]) -> str:
    code = attempt["error"] or ""
    status = f"status {attempt['status']}" if attempt["status"] else ""
    details = ", ".join(filter(None, (code, status)))
    reason = _FAILURES.get(code, "")
    return f"{reason} ({details})" if reason and details else details or "no answer"


def _context_and_budget(flight: Mapping[str, Any]) -> Iterator[str]:
    if flight["trimmed_tokens"]:
        yield f"{flight['trimmed_tokens']:,} tokens of context were left out, to fit the limit or the backend's window."
    for note in flight["notes"]:
        match note["what"]:
            case "output capped":
                yield f"The budget paid for at most {note['tokens']:,} output tokens of {note['backend']}."
            case "backend skipped":
                yield f"{note['backend']} was skipped: {note['why']}."
            case "unpriced":
                yield f"{note['backend']} has no known price, so nothing was held for it."


def _cost(flight: Mapping[str, Any]) -> str:
    if flight["cost_usd"] is None:
        return "Its cost is unknown, because a price is missing; `thriftgate prices unpriced` lists such calls."
    return f"Cost in all: {_money(flight['cost_usd'])}."


def _money(usd: str | None) -> str:
    return "price unknown" if usd is None else f"${cents(int(Decimal(usd) * 10**12))}".replace("$-", "-$")
