"""Checks whether the usage that a backend reported is possible. If the usage is impossible, an estimate replaces it."""

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
"""Average characters per token of ordinary text, used to estimate tokens."""
MOST_PER_TOKEN = 16
"""Maximum plausible number of characters per token, as an average over a whole answer. Prose and code have fewer than 8
characters per token."""
_SHORT = 64
"""Answers with at most this many characters are not checked, because a short answer may consist of a few long tokens.
"""
_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)
"""Matches a repeated character, such as blanks or dashes. Tokenizers have long tokens for these."""


class Delivered(Protocol):
    """The methods of an answer that the check needs."""

    def delivered_text(self) -> str: ...

    def delivered_characters(self) -> int: ...


def checked_usage(reported: Usage | None, attempt: Attempt, answer: Delivered, *, echoed: bool = False) -> Usage | None:
    """Return the usage `reported` by the backend, with counts that are clearly too small replaced by estimates.
    None if `reported` is None.

    `Usage.doubt` names such a count. `echoed`: the model did not generate the answer's text, so the text is not
    checked.
    """
    if reported is None or reported.estimated:
        return reported
    found = reported
    if found.service_tier and (
        key := attempt.backend.api_key
    ):  # the ledger stores the provider's text, so the key is removed from the text
        found = replace(found, service_tier=Concealer(key.get_secret_value())(found.service_tier))
    if not found.all_input and attempt.input_tokens:
        found = replace(found, input_tokens=attempt.input_tokens, estimated=True, doubt=found.doubted("input_tokens"))
    if attempt.output_bytes <= _SHORT or echoed or _possible(found.all_output, attempt.output_bytes):
        return found
    try:
        characters = answer.delivered_characters()
        if _possible(found.all_output, characters):
            return found
        text = answer.delivered_text()  # for a long answer, only its beginning
        characters = characters * len(_RUN.sub(r"\1", text)) // max(1, len(text))
    except Exception:  # a check of the text must not fail a complete answer
        log.exception("the delivered text could not be read; the reported usage is not checked")
        return found
    if _possible(found.all_output, characters):
        return found
    output = found.output_tokens + max(0, estimate(characters) - found.all_output)
    return replace(found, output_tokens=output, estimated=True, doubt=found.doubted("output_tokens"))


def usage_without_answer(body: bytes, dialect: DialectName, input_tokens: int) -> Usage | None:
    """The usage of a 2xx response that could not be read as an answer. `body`: the part that arrived; may be empty.
    Missing counts are estimated. None if nothing shows that tokens were used."""
    reported = reported_in(body, dialect)
    if is_cut(body):
        return interrupted(reported, input_tokens, estimate(characters_in(body)))
    if reported is None or not (reported.total or reported.fees):
        return None
    return reported if reported.all_input else interrupted(reported, input_tokens, 0)


def estimate(characters: int) -> int:
    """The estimated number of tokens of a text with this many characters."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def _possible(output_tokens: int, characters: int) -> bool:
    """Whether this number of tokens can produce this number of characters."""
    if not output_tokens:
        return not characters
    return characters <= max(_SHORT, output_tokens * MOST_PER_TOKEN)
