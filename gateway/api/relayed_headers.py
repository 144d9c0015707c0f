"""Limits the backend response headers that are relayed to clients: count, length, characters and values."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MOST_RELAYED = 32
"""Maximum number of a backend's headers that are relayed with one answer."""
LONGEST_NAME = 64
"""Maximum bytes of the name of a relayed header."""
LONGEST_RESET_S = 31 * 86400.0
"""Maximum seconds until a limit is reset. The longest limits of providers are monthly."""

_NUMBER = re.compile(rb"-?\d{1,15}(?:\.\d{1,9})?")
_WORD = re.compile(rb"[A-Za-z][\w -]{0,63}", re.ASCII)
_MILLISECONDS = re.compile(rb"\d{1,9}(?:\.\d{1,9})?")
_TEXT = re.compile(rb"(?!.*\d{16})[\x20-\x7e]{0,256}")
_DURATION = re.compile(
    rb"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,12}(?:\.\d{1,9})?)ms)?"
)
_UNITS_S = (86400.0, 3600.0, 60.0, 1.0, 0.001)


def is_bounded(name: bytes, value: bytes) -> bool:
    """Whether the value of a header may be relayed: it must be printable and short, and a number, duration or time
    in it must be within bounds.

    `name`: the header's name in lower case.
    """
    if len(name) > LONGEST_NAME:
        return False
    if b"ratelimit" not in name:
        return (_MILLISECONDS if name.endswith(b"-ms") else _TEXT).fullmatch(value) is not None
    if b"reset" in name:
        return _is_near(value)
    return (_NUMBER.fullmatch(value) or _WORD.fullmatch(value)) is not None


def _is_near(value: bytes) -> bool:
    """Whether `value` is a duration of at most a month, or a time at most a month away. A duration has units or is in
    seconds. A time is Unix time (s or ms), RFC 3339 or HTTP's format."""
    if len(value) > 64:
        return False
    if _MILLISECONDS.fullmatch(value) and float(value) <= LONGEST_RESET_S:
        return True
    if value and (found := _DURATION.fullmatch(value)):
        return sum(float(part or 0) * unit for part, unit in zip(found.groups(), _UNITS_S, strict=True)) <= (
            LONGEST_RESET_S
        )
    at = _moment(value)
    return at is not None and abs(at - time.time()) <= LONGEST_RESET_S


def _moment(value: bytes) -> float | None:
    """The time in `value`, in Unix seconds. None if `value` is not a time."""
    if _NUMBER.fullmatch(value):
        at = float(value)
        return at / 1000 if at > 1e11 else at
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(value.decode("ascii"))
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, TypeError):
            continue
    return None
