"""When an answer is too weak to show, and who answers instead."""

from __future__ import annotations

import re

from gateway.backends.attempts import Attempts, Errand
from gateway.backends.relay import Relayed, Whole
from gateway.domain.route import Route
from gateway.errors import GatewayError

_DECLINES = (
    # English
    r"i(?:['’]?m| am) (?:\w+ )?(?:sorry|afraid),? (?:but )?(?:i|we) (?:can['’]?t|cannot|am (?:un|not )able)",
    r"(?:sorry|unfortunately|apologies),? (?:but )?i (?:can['’]?t|cannot|am (?:un|not )able|don['’]?t)",
    r"i(?:['’]?m| am)? ?(?:can['’]?t|cannot|unable to|not able to) (?:help|assist|answer|provide|fulfil|complete)",
    r"i (?:don['’]?t|do not) (?:know|have (?:access|enough information))",
    r"as an ai\b",
    # Spanish
    r"(?:lo siento|lo lamento|disculp[ae]|perdona?),? (?:pero )?no (?:puedo|soy capaz|tengo|s[eé]\b)",
    r"no (?:puedo|soy capaz de) (?:ayudar|responder|proporcionar|asistir)",
    # Portuguese
    r"(?:desculpe|sinto muito|lamento|infelizmente),? (?:mas )?(?:eu )?não (?:posso|consigo|tenho|sou capaz|sei\b)",
    r"não (?:posso|consigo) (?:ajudar|responder|fornecer|atender)",
    # Spanish and Portuguese
    r"como (?:un |um )?modelo de (?:lenguaje|linguagem)",
)
_REFUSAL = re.compile(rf"\W*(?:{'|'.join(_DECLINES)})", re.IGNORECASE)
_LONGEST_REFUSAL = 400
"""Characters; what begins with an apology and goes on for longer has answered something."""


def weakness(answer: Whole, below: float) -> str:
    """Why this answer should not be shown if a better one can be had; empty when it may be."""
    if answer.finish == "tool_calls":
        return ""
    text = answer.text.strip()
    if not text:
        return "empty"
    if answer.finish == "content_filter" or (len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text)):
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
        return answer
    except BaseException:
        attempts.close(errand, weak, "escalated")
        raise
    attempts.totals.escalated += 1
    attempts.close(errand, weak, "escalated")
    errand.record.escalated = True
    return strong
