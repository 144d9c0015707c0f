"""Normalises numbers in answers, so that equal numbers compare equal."""

from __future__ import annotations

import re
from fractions import Fraction

from gateway.domain.text.function_words import Language

_GROUPED = r"\d{1,3}(?:[.,'’\u00a0\u202f\u2009]\d{3})+(?:[.,]\d+)?"
_PLAIN = r"\d+(?:[.,]\d+)?|[.,]\d+"
_ONE = rf"(?:{_GROUPED}|{_PLAIN})(?![\d])"
NUMBER = re.compile(
    rf"(?<![\w.,/])[-−–+]?\s?(?:US\$|R\$|[$€£¥])?\s?[-−]?"
    rf"(?:(?P<whole>\d+)\s(?P<upper>\d+)/(?P<lower>\d+)|(?P<over>{_ONE})\s?/\s?(?P<under>\d+)"
    rf"|(?P<one>{_ONE})(?:\s?[×x*·]\s?10\s?\^?\s?\{{?(?P<power>[-−]?\d{{1,3}})\}}?|[eE](?P<exponent>[-+]?\d{{1,3}}))?)"
    r"(?![\w/])"
)
"""Matches a number, a fraction or a mixed number, including a sign and a currency symbol before it."""
_LONGEST = 60
"""Longest number, in characters; longer ones are ignored."""
_MOST_POWER = 100


def value(found: re.Match[str], language: Language | None = None) -> Fraction | None:
    """The value of `found`, a match of `NUMBER`; None if the number is too long or divided by 0."""
    if len(found[0]) > _LONGEST:
        return None
    sign = -1 if re.search(r"[-−–]", found[0][: found[0].find(next(filter(str.isdigit, found[0])))]) else 1
    try:
        if found["whole"]:
            return sign * (int(found["whole"]) + Fraction(int(found["upper"]), int(found["lower"])))
        if found["over"]:
            return sign * _decimal(found["over"], language) / int(found["under"])
        power = int((found["power"] or found["exponent"] or "0").replace("−", "-"))
        if abs(power) > _MOST_POWER:
            return None
        return sign * _decimal(found["one"], language) * Fraction(10) ** power
    except (ValueError, ZeroDivisionError):
        return None


def _decimal(written: str, language: Language | None) -> Fraction:
    """Parse a number such as `1,234.5`, `1.234,5` or `1 234`. The last comma or point is the decimal mark. If three
    digits follow it, as in `1,234`, the language decides."""
    bare = re.sub(r"['’\u00a0\u202f\u2009]", "", written)
    dots, commas = bare.count("."), bare.count(",")
    if dots and commas:
        decimal = max(".", ",", key=bare.rfind)
    elif dots > 1 or commas > 1:
        decimal = ""
    else:
        mark = "." if dots else ","
        groups = re.fullmatch(rf"[1-9]\d{{0,2}}\{mark}\d{{3}}", bare) is not None
        # 1,234 is a thousand in English; 1.234 is a thousand in Spanish and Portuguese
        thousands = "." if language in ("es", "pt") else ","
        decimal = "" if groups and mark == thousands else mark
    for mark in ".,":
        bare = bare.replace(mark, "." if mark == decimal else "")
    return Fraction(bare)


def last(text: str, language: Language | None = None) -> str | None:
    """The last number in `text`, in canonical form; None if there is none."""
    found = list(NUMBER.finditer(text))[-1:]
    number = value(found[0], language) if found else None
    return None if number is None else str(number)
