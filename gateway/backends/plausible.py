"""Checks whether the usage that a backend reported can be true, and bounds it if it cannot."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Protocol

from gateway.dialects.answers.partial_body import characters_in, is_cut, reported_in
from gateway.domain.money.usage import Usage, interrupted
from gateway.domain.record import Attempt
from gateway.domain.request import DialectName
from gateway.domain.text.concealment import Concealer

log = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 4
"""Of ordinary text, to estimate tokens."""
MOST_PER_TOKEN = 16
"""Characters of a token, on average over a whole answer; in prose and code of any language they are fewer than 8."""
_SHORT = 64
"""An answer of so many characters may be a few long tokens."""
_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)
"""Blanks, dashes: tokenizers have long tokens for these alone."""


class Delivered(Protocol):
    """What the check needs of an answer."""

    def delivered_text(self) -> str: ...

    def delivered_characters(self) -> int: ...


def believed(reported: Usage | None, attempt: Attempt, answer: Delivered, *, wordless: bool = False) -> Usage | None:
    """`reported`, but never below what was evidently sent and delivered: then estimates take the place of the class
    that is too low, and `doubt` names it. None: the backend reported nothing.

    `wordless`: its text is not the model's output: vectors, or a prompt that the client asked to be repeated.
    """
    if reported is None or reported.estimated:
        return reported
    found = reported
    if found.service_tier and (key := attempt.backend.api_key):  # the provider's own word, which the ledger keeps
        found = replace(found, service_tier=Concealer(key.get_secret_value())(found.service_tier))
    if not found.all_input and attempt.input_tokens:
        found = replace(found, input_tokens=attempt.input_tokens, estimated=True, doubt=found.doubted("input_tokens"))
    if attempt.output_bytes <= _SHORT or wordless or _possible(found.all_output, attempt.output_bytes):
        return found
    try:
        characters = answer.delivered_characters()
        if _possible(found.all_output, characters):
            return found
        text = answer.delivered_text()  # of a long one the beginning
        characters = characters * len(_RUN.sub(r"\1", text)) // max(1, len(text))
    except Exception:  # an answer that is whole must not fail over a look at its text
        log.exception("what was delivered could not be read; the reported usage is not checked")
        return found
    if _possible(found.all_output, characters):
        return found
    output = found.output_tokens + max(0, estimate(characters) - found.all_output)
    return replace(found, output_tokens=output, estimated=True, doubt=found.doubted("output_tokens"))


def of_no_answer(body: bytes, dialect: DialectName, input_tokens: int) -> Usage | None:
    """The usage of a 2xx response that did not become an answer: `body` is none, or all of it that arrived.

    What it reports; else estimates, where it is the beginning of an answer. None: nothing tells that there was any.
    """
    reported = reported_in(body, dialect)
    if is_cut(body):
        return interrupted(reported, input_tokens, estimate(characters_in(body)))
    if reported is None or not (reported.total or reported.fees):
        return None
    return reported if reported.all_input else interrupted(reported, input_tokens, 0)


def estimate(characters: int) -> int:
    """Tokens of so many characters of text."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def _possible(output_tokens: int, characters: int) -> bool:
    """Can so few tokens be so many characters?"""
    if not output_tokens:
        return not characters
    return characters <= max(_SHORT, output_tokens * MOST_PER_TOKEN)
