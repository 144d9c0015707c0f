"""Finds sentences that ask for information, in English, Spanish and Portuguese, by their first words."""

from __future__ import annotations

import re

_ASKING = re.compile(
    r"[\s¿\"'(]{0,3}(?:(?:please|now|ok|and|por favor|y|e|ahora|agora)[,\s]\s?){0,2}(?:"
    r"(?:tell|remind) me\b|dime\b|d[ií]game\b|recu[eé]rdame\b|(?:diz|diga|lembra|lembre)-me\b"
    r"|me (?:diz|diga|lembr[ae])\b"
    r"|list (?:the|all)\b[^\n]{0,200}\b(?:from|in) the\b"
    r"|(?:what|which)\s(?:\w{1,30}\s){0,2}(?:was|were|is|are|did|does|had|has)\b"
    r"|(?:who|where|when|why)\s(?:was|were|is|are|did|does|had|has)\b|how (?:many|much|often|long)\b"
    r"|who (?:must|should|can)\b|(?:at|in) (?:what|which)\b"
    r"|cu[aá]l(?:es)?\s(?:\w{1,30}\s){0,2}(?:es|son|era|eran|fue|fueron)\b"
    r"|(?:(?:a|en|cada|de)\s)?(?:qué|cuánto|dónde|quién|cuándo|cuánt[oa]s?)\s"
    r"|(?:qual|quais)\s|(?:onde|quem|o que)\s(?:é|era|eram|foi|foram|está|estava|ficou)\b"
    r"|(?:(?:de|em|a)\s)?quant(?:o|os|as)\s|quem\s)",
    re.IGNORECASE,
)
"""Matches the beginning of a sentence that asks for information. All repetitions are bounded, so the time is linear in
the length."""


def asks(sentence: str) -> bool:
    """Return whether a sentence begins with words that ask for information."""
    return _ASKING.match(sentence) is not None
