"""Function words of English, Spanish and Portuguese."""

from __future__ import annotations

from typing import Literal

Language = Literal["en", "es", "pt"]

_EN = """the and of to is in that it for with are this was be by on not you which have from what how an or at they if
will can would there their has its we he she his her but been were does do"""
_ES = """el la los las de que y en un una es por con para del se su al lo como más pero sus le ya muy está son cuál qué
cuántos cuántas cuánto cómo dónde hay también porque este esta eso cada entre sin sobre fue ser hasta cuando donde desde
todo nos hace puede tiene"""
_PT = """o os as de que e em um uma é por com para do da dos das na nas não se seu sua ao mais mas como são está qual
quais quantos quantas quanto você também porque este esta isso cada entre sem sobre foi ser até quando onde desde tudo
nos pela pelo há pode tem"""

FUNCTION_WORDS: dict[Language, frozenset[str]] = {
    "en": frozenset(_EN.split()),
    "es": frozenset(_ES.split()),
    "pt": frozenset(_PT.split()),
}
""""a" and "no" are left out, because they are words of all three languages."""
