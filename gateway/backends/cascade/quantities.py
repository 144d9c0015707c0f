"""Normalises numbers in answers to one form, so that equal answers compare equal."""

from __future__ import annotations

import re
from fractions import Fraction

from gateway.backends.cascade.languages import Language

_GROUPED = r"\d{1,3}(?:[.,'’\u00a0\u202f\u2009]\d{3})+(?:[.,]\d+)?"
_PLAIN = r"\d+(?:[.,]\d+)?|[.,]\d+"
_ONE = rf"(?:{_GROUPED}|{_PLAIN})(?![\d])"
NUMBER = re.compile(
    rf"(?<![\w.,/])[-−–+]?\s?(?:US\$|R\$|[$€£¥])?\s?[-−]?"
    rf"(?:(?P<whole>\d+)\s(?P<upper>\d+)/(?P<lower>\d+)|(?P<over>{_ONE})\s?/\s?(?P<under>\d+)"
    rf"|(?P<one>{_ONE})(?:\s?[×x*·]\s?10\s?\^?\s?\{{?(?P<power>[-−]?\d{{1,3}})\}}?|[eE](?P<exponent>[-+]?\d{{1,3}}))?)"
    r"(?![\w/])"
)
"""A number, a fraction or a mixed number, with its sign and the currency before it."""
_LONGEST = 60
"""Digits; what has more is no answer that two models agree on by thinking."""
_MOST_POWER = 100


def value(found: re.Match[str], spoken: Language | None = None) -> Fraction | None:
    """What a match of `NUMBER` is worth; None when it cannot be told (absurdly long, divided by 0)."""
    if len(found[0]) > _LONGEST:
        return None
    sign = -1 if re.search(r"[-−–]", found[0][: found[0].find(next(filter(str.isdigit, found[0])))]) else 1
    try:
        if found["whole"]:
            return sign * (int(found["whole"]) + Fraction(int(found["upper"]), int(found["lower"])))
        if found["over"]:
            return sign * _decimal(found["over"], spoken) / int(found["under"])
        power = int((found["power"] or found["exponent"] or "0").replace("−", "-"))
        if abs(power) > _MOST_POWER:
            return None
        return sign * _decimal(found["one"], spoken) * Fraction(10) ** power
    except (ValueError, ZeroDivisionError):
        return None


def _decimal(written: str, spoken: Language | None) -> Fraction:
    """`1,234.5`, `1.234,5`, `1 234`: the last mark is the decimal one, unless it only groups thousands."""
    bare = re.sub(r"['’\u00a0\u202f\u2009]", "", written)
    dots, commas = bare.count("."), bare.count(",")
    if dots and commas:
        decimal = max(".", ",", key=bare.rfind)
    elif dots > 1 or commas > 1:
        decimal = ""
    else:
        mark = "." if dots else ","
        groups = re.fullmatch(rf"[1-9]\d{{0,2}}\{mark}\d{{3}}", bare) is not None
        # 1,234 is a thousand in English, 1.234 in Spanish and Portuguese; the other one has three decimals
        thousands = "." if spoken in ("es", "pt") else ","
        decimal = "" if groups and mark == thousands else mark
    for mark in ".,":
        bare = bare.replace(mark, "." if mark == decimal else "")
    return Fraction(bare)


def last(text: str, spoken: Language | None = None) -> str | None:
    """The last number in `text`, in its canonical form; None when there is none."""
    found = list(NUMBER.finditer(text))[-1:]
    worth = value(found[0], spoken) if found else None
    return None if worth is None else str(worth)
