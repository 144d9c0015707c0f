"""Detects answers that refuse to help."""

from __future__ import annotations

import re

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
"""Maximum characters of a refusal. A longer text counts as an answer, even if it begins with an apology."""


def declines(text: str) -> bool:
    """Return whether the whole text is a refusal, in English, Spanish or Portuguese."""
    return len(text) <= _LONGEST_REFUSAL and begins_declining(text)


def begins_declining(text: str) -> bool:
    """Return whether the text begins with a refusal. The text may be the beginning of an answer in progress."""
    return _REFUSAL.match(text) is not None
