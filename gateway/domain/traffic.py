"""Assigns each request to a traffic class: language × needs × step. There are exactly 80 classes. Reports and metrics
use them.

The class is computed for every request, so it is read from few characters. `cascade/languages.py` is more exact and
twenty times slower.
"""

from __future__ import annotations

from typing import Literal

from gateway.domain.request import CompletionRequest
from gateway.domain.text.function_words import FUNCTION_WORDS

Needs = Literal["tools", "image", "schema", "long", "text"]
Step = Literal["opening", "follow_up", "after_tool", "background"]
LANGUAGES = ("en", "es", "pt", "other")
"""`other`: another language, code, or too little text."""
NEEDS: tuple[Needs, ...] = ("tools", "image", "schema", "long", "text")
"""The needs of a request, in order of priority: the first need that applies is part of the class."""
STEPS: tuple[Step, ...] = ("opening", "follow_up", "after_tool", "background")
LONG_TOKENS = 8_000
"""Input tokens from which a text counts as long."""
_SIMPLE = {language: f"{language}/text/opening" for language in LANGUAGES}
CLASSES = frozenset(f"{language}/{needs}/{step}" for language in LANGUAGES for needs in NEEDS for step in STEPS)

_READ = 240
"""Number of characters of the question that are read."""
_LEAST_HITS = 2
"""Minimum number of different function words of a language by which the language is recognised."""
_EN, _ES, _PT = FUNCTION_WORDS["en"], FUNCTION_WORDS["es"], FUNCTION_WORDS["pt"]
_BEFORE, _AFTER, _AROUND = "¿¡(\"'«", "?!.,:;)\"'»", ("¿?", "¡!", "()", '""', "''", "«»")
_MARKS = (("", ""), *((mark, "") for mark in _BEFORE), *(("", mark) for mark in _AFTER), *_AROUND)
_WORDS = {f"{before}{word}{after}": word for word in _EN | _ES | _PT for before, after in _MARKS}
"""A function word as it may stand in a text, with punctuation before, after or around it → the word. To remove the
punctuation from the whole text would take longer than everything else."""
_FORMS = frozenset(_WORDS)


def traffic_class(request: CompletionRequest, input_tokens: int) -> str:
    """The traffic class of a request, for example `es/text/opening`."""
    turns = request.turns
    if len(turns) == 1 and input_tokens < LONG_TOKENS and not (request.needs or request.agent):  # the usual case
        return _SIMPLE[language_of(turns[0].text)]
    return f"{language_of(request.last_user)}/{needs_of(request, input_tokens)}/{step_of(request)}"


def language_of(question: str) -> str:
    """The language of a question, found by its function words; `other` if the language is unclear."""
    words = set(map(_WORDS.__getitem__, _FORMS.intersection(question[:_READ].lower().split())))
    en, es, pt = len(words & _EN), len(words & _ES), len(words & _PT)
    if en >= _LEAST_HITS and es < en > pt:
        return "en"
    if es >= _LEAST_HITS and en < es > pt:
        return "es"
    return "pt" if pt >= _LEAST_HITS and en < pt > es else "other"


def needs_of(request: CompletionRequest, input_tokens: int) -> Needs:
    needs = request.needs
    if "tools" in needs:
        return "tools"
    if "vision" in needs:
        return "image"
    if "json_schema" in needs:
        return "schema"
    return "long" if input_tokens >= LONG_TOKENS else "text"


def step_of(request: CompletionRequest) -> Step:
    """The step of a request in its conversation. An agent's request without tools counts as a background call, such as
    a call for a title."""
    if request.agent and "tools" not in request.needs:
        return "background"
    turns = request.turns
    if turns and (turns[-1].role == "tool" or turns[-1].results):
        return "after_tool"
    return "follow_up" if any(turn.role == "assistant" for turn in turns) else "opening"
