"""When an answer is too weak to show, and who answers instead."""

from __future__ import annotations

from gateway.backends.attempts import Attempts, Errand
from gateway.backends.relay import Relayed, Whole
from gateway.domain.refusal import declines
from gateway.domain.route import Route
from gateway.errors import GatewayError


def weakness(answer: Whole, below: float) -> str:
    """Why this answer should not be shown if a better one can be had; empty when it may be."""
    if answer.finish == "tool_calls":
        return ""
    text = answer.text.strip()
    if not text:
        return "empty"
    if answer.finish == "content_filter" or declines(text):
        return "refusal"
    if answer.confidence is not None and answer.confidence < below:
        return "unsure"
    return ""


async def escalating(attempts: Attempts, route: Route, errand: Errand) -> Relayed | Whole:
    """The first backend's answer if it is good enough, else that of `route.escalate_to`, else the weak one after all.

    The weak attempt stays open in the books while the stronger backend is asked: only then is it known which serves.
    """
    first, stronger = route.backends[0], route.escalate_to
    tells = "logprobs" in first.capabilities and route.escalate_below > 0
    answer = await attempts.first_of(route.backends, errand, unsure=first if tells else None)
    weak = answer.attempt
    if stronger is None or not isinstance(answer, Whole) or weak.backend is not first:
        return answer
    if not (why := weakness(answer, route.escalate_below)):
        return answer
    errand.record.note("escalating", backend=first.name, to=stronger.name, why=why, confidence=answer.confidence)
    try:
        strong = await attempts.first_of((stronger,), errand)
    except GatewayError as error:
        errand.record.note("escalation failed", to=stronger.name, code=error.code)
        errand.record.weak = True
        return answer
    except BaseException:
        attempts.close(errand, weak, "escalated")
        raise
    attempts.totals.escalated += 1
    attempts.close(errand, weak, "escalated")
    errand.record.escalated = True
    return strong
