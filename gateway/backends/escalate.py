"""When an answer is too weak to show, and who answers instead."""

from __future__ import annotations

import re

from gateway.backends.attempts import Attempts, Errand
from gateway.backends.relay import Relayed, Whole
from gateway.domain.route import Route
from gateway.errors import GatewayError

_REFUSAL = re.compile(
    r"\W*(?:"
    r"(?:i['’]?m|i am|we['’]?re) (?:very |so |really |truly )?sorry,? (?:but )?(?:i|we) (?:can['’]?t|cannot|am not able|'m not able)"
    r"|(?:sorry|unfortunately|apologies),? (?:but )?i (?:can['’]?t|cannot|am unable|am not able|don['’]?t)"
    r"|i (?:can['’]?t|cannot|am unable to|am not able to|['’]m unable to) (?:help|assist|answer|provide|do|fulfill|complete)"
    r"|as an ai(?: language)? (?:model|assistant)"
    r"|i (?:don['’]?t|do not) (?:know|have (?:access|enough information))"
    r"|(?:lo siento|lo lamento|disculpa|perdón),? (?:pero )?(?:no puedo|no soy capaz|no tengo)"
    r"|no (?:puedo|soy capaz de) (?:ayudar|responder|proporcionar|asistir)"
    r"|como (?:un )?modelo de (?:lenguaje|linguagem)"
    r"|(?:desculpe|sinto muito|lamento|infelizmente),? (?:mas )?(?:não posso|não consigo|não tenho|não sou capaz)"
    r"|não (?:posso|consigo) (?:ajudar|responder|fornecer|atender)"
    r")",
    re.IGNORECASE,
)
"""How small models decline, in English, Spanish and Portuguese."""
_LONGEST_REFUSAL = 400
"""Characters; a longer answer that begins with an apology has answered something."""
