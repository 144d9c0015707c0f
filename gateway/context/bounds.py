"""Computes the limits for the tokens of a request, from the backend's window and the team's policy."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from gateway.context.count import family_factor
from gateway.context.reported import Report
from gateway.domain.backend import Backend
from gateway.domain.policy import ContextPolicy
from gateway.domain.request import CompletionRequest

_ANSWER_TOKENS = 1024
"""Tokens reserved for the answer if the client did not limit it. At most a quarter of the window is reserved."""
_ENDS_AT_WINDOW = re.compile(r"claude-(?:[a-z]+-)?(?:4[-.][5-9]|[5-9])")
"""Matches the models whose provider accepts an output limit that is larger than the rest of the window. The provider
then ends the answer at the end of the window."""
_MOST_OVER = 1.5
"""Limit for the ratio of the tokens that a backend reported to the tokens that the gateway counted. The ratio of a
session is at most the factor of the model's family times this number. A larger ratio is caused by tokens that the
provider adds only once, such as the tokens of its own tools."""
_WITHOUT_THINKING = 0.7
"""The lowest measured share of the counted tokens that a provider really read. Measured in recorded sessions with
thinking."""


@dataclass(frozen=True, slots=True)
class Bounds:
    aim: int
    """Trimming ends when the input has at most this number of tokens, or when nothing more can be removed."""
    tries: int
    """The input is trimmed before the first call if it has more than this number of tokens. If the input has between
    `aim` and `tries` tokens, it may fit, so it is trimmed only after the backend has refused it."""
    most: int
    """The request is refused if its input has more than this number of tokens after trimming. If the trimmed input has
    between `aim` and `most` tokens, it is sent, and the backend decides with its own tokenizer whether it fits."""
    trims: bool
    answer: int | None
    """Tokens of the window that are reserved for the answer. None if the limit comes from the team's policy."""


def bounds_of(
    request: CompletionRequest, policy: ContextPolicy, backend: Backend, report: Report | None
) -> Bounds | None:
    """The token limits for a request; None if the request has no limit. `report`: the size that the backend reported
    for the session's last request."""
    limit, window_tokens = policy.max_input_tokens, backend.window_tokens
    if limit is None and window_tokens is None:
        return None
    trims, window = policy.enabled and not request.controls.untouched, None
    if window_tokens is not None:
        refuses = backend.hosted  # some servers do not refuse a prompt that is too long, but drop its beginning
        window = _window_bounds(
            window_tokens, backend.model, backend.max_output_tokens, request.max_output_tokens, trims, refuses
        )
        if report is not None:
            window = _as_reported(window, window_tokens, report, family_factor(backend.model))
            window = window if refuses else replace(window, tries=window.aim)
    if not trims or limit is None:
        return window
    if window is None or limit <= window.aim:
        return Bounds(limit, limit, limit, trims, None)
    if limit >= window.most:
        return window
    return Bounds(window.aim, min(window.tries, limit), limit, trims, None)


@lru_cache(maxsize=1024)
def _window_bounds(
    window: int, model: str, longest: int | None, asked: int | None, trims: bool, refuses: bool
) -> Bounds:
    """The token limits that follow from the backend's window. Results are cached, because clients ask for few
    different output limits.

    `longest`: maximum tokens of the model's answer. `asked`: the client's output limit. `trims`: whether the input
    may be trimmed. `refuses`: whether the backend refuses a prompt that is too long.
    """
    # An answer gets at most half the window, so that clients that always request the maximum can still send input.
    answer = min(asked, longest or asked, window // 2) if asked else 0
    most = window - (1 if _ENDS_AT_WINDOW.search(model) else max(answer, 1))
    aim = int(window / family_factor(model)) - (answer or min(_ANSWER_TOKENS, window // 4))
    aim = max(1, min(aim, most))
    return Bounds(aim, most if refuses else aim, most, trims, max(answer, 1))


def tried(request: CompletionRequest, bounds: Bounds, backend: Backend, report: Report | None) -> int:
    """The number of counted tokens above which the request is trimmed before its first call."""
    if report is None and bounds.answer is not None and backend.hosted and any(turn.asides for turn in request.turns):
        return int(bounds.tries / _WITHOUT_THINKING)  # some models do not read the thinking of earlier turns
    return bounds.tries


def _as_reported(window: Bounds, tokens: int, report: Report, factor: float) -> Bounds:
    """The token limits for a session whose last request has a size that the backend reported.

    The reported size is exact. So only the tokens that were added since then are multiplied by a factor. This
    factor is `factor` (of the model's family), or the session's own ratio of reported to counted tokens if that is
    larger. `tokens`: the backend's context window.
    """
    answer = window.answer or 0
    room = tokens - report.reported - (answer if answer > 1 else min(_ANSWER_TOKENS, tokens // 4))
    if room >= 0:
        ratio = min(report.reported / report.counted, _MOST_OVER * factor)
        aim = report.counted + int(room / max(factor, ratio))
    else:  # the session is larger than this window, so the part that remains is scaled by the session's ratio
        aim = report.counted * (report.reported + room) // report.reported
    aim = max(1, aim)
    tries = max(aim, report.counted + window.tries - report.reported)
    return replace(window, aim=aim, tries=tries, most=max(window.most, aim))
