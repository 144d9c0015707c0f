"""Finds signs that an answer is weak, and computes the answer's vote. A cascade uses the signs and the vote to decide
whether to call another backend."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.backends.cascade.languages import asked_in, foreign_script, language, names_one
from gateway.backends.cascade.schemas import Expected
from gateway.backends.cascade.votes import vote
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.strategy import StrategyAnswer
from gateway.domain.text.declining import begins_declining, declines

log = logging.getLogger(__name__)

_LOOPS = range(4, 161)
"""Lengths, in characters, of the sequences whose repetition is detected."""
_TIMES, _LEAST_LOOP = 4, 240
"""Minimum number of repetitions of a sequence, and minimum number of characters of all repetitions together."""
_LETTERS = re.compile(r"[^\W\d_]{2}")


class Reader:
    """Judges the answers to one request."""

    __slots__ = ("_expected", "_limited", "_mentions_languages", "_question", "_question_language")

    def __init__(self, request: CompletionRequest) -> None:
        self._expected = Expected(request)
        self._limited = request.max_output_tokens is not None
        self._question = request.last_user
        self._question_language = asked_in(self._question)
        self._mentions_languages = any(names_one(turn.text) for turn in request.turns)
        """Whether the conversation mentions a language or translation. Then an answer in another language than the
        question is not weak."""

    def answered(
        self, backend: str, choices: Sequence[Mapping[str, Any]], finish: str, confidence: float | None
    ) -> StrategyAnswer:
        """Judge a whole answer. `choices`: as in a chat completion; only the first one is read."""
        message = choices[0].get("message") if choices else None
        message = message if type(message) is dict else {}
        try:
            weak = self._weakness(message, finish)
            found = (
                None
                if weak
                else vote(message, json_wanted=self._expected.json, question_language=self._question_language)
            )
        except Exception:  # an answer that cannot be judged has no vote, but can be served
            log.exception("an answer of %s could not be judged", backend)
            return StrategyAnswer(backend, None, confidence=confidence)
        return StrategyAnswer(backend, found, weak, confidence)

    def _weakness(self, message: Mapping[str, Any], finish: str) -> str:
        found = weakness(message, finish, self._expected, limited=self._limited)
        content = message.get("content")
        called = finish == "tool_calls" or message.get("tool_calls") or message.get("function_call")
        if found or called or type(content) is not str:
            return found
        return "off_language" if self._off_language(content.strip()) else ""

    def _off_language(self, text: str) -> bool:
        if self._mentions_languages or self._expected.json:
            return False
        if foreign_script(self._question, text):
            return True
        answered_in = language(text) if self._question_language else None
        return answered_in is not None and answered_in != self._question_language

    def beginning(self, text: str, *, thinks: bool) -> str:
        """The reason to stop a stream, found in its text so far; empty if it may continue.

        `thinks`: whether the text may begin with the model's thinking, whose format and words are not judged.
        """
        if repeats(text):
            return "repetition"
        if thinks:
            return ""
        if begins_declining(text):
            return "refusal"
        return "" if self._expected.beginning(text) else "invalid_json"


def weakness(message: Mapping[str, Any], finish: str, expected: Expected, *, limited: bool) -> str:
    """The sign that a whole answer is weak; empty if there is none. Languages are not compared. `limited`: whether the
    client limits the length of the answer."""
    calls = message.get("tool_calls")
    if calls or message.get("function_call"):
        return "" if _valid_calls(calls, expected) else "invalid_tool_call"
    content = message.get("content")
    text = content.strip() if type(content) is str else ""
    if finish == "content_filter" or message.get("refusal"):
        return "refusal"
    if finish == "tool_calls":
        return ""  # a tool call that chat completions cannot express
    if not text:
        return "empty"
    if declines(text):
        return "refusal"
    if finish == "length" and not limited:  # another backend's answer would end at a client's limit too
        return "truncated"
    if repeats(text):
        return "repetition"
    return "" if expected.content(text) else "invalid_json"


def _valid_calls(calls: Any, expected: Expected) -> bool:
    for call in calls if type(calls) is list else ():
        function = call.get("function") if type(call) is dict else None
        if type(function) is dict and not expected.call(function.get("name"), function.get("arguments")):
            return False
    return True


def repeats(text: str) -> bool:
    """Whether `text` ends in a sequence of words that repeats many times. Repeated dashes, dots or numbers do not
    count."""
    if len(text) < _LEAST_LOOP:
        return False
    last = text[-1]
    for size in _LOOPS:
        if text[-1 - size] != last:
            continue
        unit = text[-size:]
        if text.endswith(unit * max(_TIMES, -(-_LEAST_LOOP // size))):
            return _LETTERS.search(unit) is not None
    return False
