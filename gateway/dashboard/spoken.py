"""Translates English sentences of the server for the page: alerts, reasons of routes, explanations of requests.

These sentences have fixed forms. `spoken.json` has each form with its Spanish and Portuguese translations: `{0}` stands
for any text, `{#0}` for a number. A sentence with another form stays English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

LANGUAGES = ("es", "pt")
FORMS = Path(__file__).with_name("spoken.json")
LONGEST = 1000
"""A longer text is not translated: it would take too long to compare it with all forms."""
_FIELDS = frozenset({"text", "why", "sentences", "reason", "excluded"})
"""The fields of the page's data that contain such sentences."""
_PLACE = re.compile(r"\\\{(\\#)?(\d)\\\}")
_DEEPEST = 3
"""Maximum depth of forms in values of forms."""
_SWAPPED = str.maketrans(",.", ".,")


def language_of(accepted: str) -> str:
    """The language of an Accept-Language header, if the page has translations for it; otherwise empty."""
    first = accepted[:2].lower()
    return first if first in LANGUAGES else ""


def said(values: Mapping[str, Any], language: str) -> dict[str, str]:
    """Translate the sentences in `values`: English sentence → translation. Sentences without a translation are left
    out."""
    found = {text: translated(text, language) for text in dict.fromkeys(_sentences(values, named=False))}
    return {text: translation for text, translation in found.items() if translation is not None}


def translated(text: str, language: str, depth: int = 0) -> str | None:
    """The translation of a sentence; None if it has no known form."""
    if len(text) > LONGEST or depth > _DEEPEST:
        return None
    for start, pattern, translations in _forms():
        if text.startswith(start) and (match := pattern.fullmatch(text)):
            return _filled(translations[LANGUAGES.index(language)], match, language, depth)
    return None


def _filled(translation: str, match: re.Match[str], language: str, depth: int) -> str:
    places: dict[str, str] = {}
    for name, value in match.groupdict().items():
        number = name[0] == "n"
        places[name[1:]] = value.translate(_SWAPPED) if number else translated(value, language, depth + 1) or value
    return re.sub(r"\{(\d)\}", lambda place: places[place[1]], translation)


@cache
def _forms() -> tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...]:
    """The known forms, each as (text before the first variable part, pattern, translations)."""
    return tuple(
        (form.split("{")[0], _pattern(form), tuple(others)) for form, *others in orjson.loads(FORMS.read_bytes())
    )


def _pattern(form: str) -> re.Pattern[str]:
    def place(match: re.Match[str]) -> str:
        return rf"(?P<n{match[2]}>[0-9][0-9,.]*)" if match[1] else rf"(?P<t{match[2]}>.+?)"

    return re.compile(_PLACE.sub(place, re.escape(form)))


def _sentences(value: Any, *, named: bool) -> Iterator[str]:
    """Find all sentences in JSON values. `named`: whether `value` belongs to one of `_FIELDS`."""
    if isinstance(value, str):
        if named and value:
            yield value.strip()
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _sentences(part, named=name in _FIELDS)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _sentences(part, named=named)
