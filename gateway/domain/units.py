"""Parses shares, durations, sizes and dollars as people write them in YAML."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator

PICO_PER_USD = 10**12
NANO_PER_USD = 10**9
PICO_PER_NANO = 1000

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

LONGEST_S = 10 * 366 * 86400.0
"""Maximum duration in seconds that clocks and the state server's expiry accept."""
MOST_COUNT = 10**15
"""The highest limit that a policy may set. The state server's counters are doubles, which are exact up to nine times
this number."""
MOST_USD = 10**9
"""Maximum amount in dollars. Counters are nano-dollars in 64 bits, so their limit is nine billion dollars."""


def parse_share(value: Any) -> float:
    """Parse a share: `"80%"` or `0.8` → 0.8. Raises ValueError outside 0..1."""
    if isinstance(value, str):
        text = value.strip()
        try:
            share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            raise ValueError(f"must be a share such as 80% or 0.8, not {value!r}") from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    else:
        raise ValueError(f"must be a share such as 80% or 0.8, not {value!r}")
    if not 0 <= share <= 1:
        bare = 1 < share <= 100 and not str(value).strip().endswith("%")
        meant = f"; did you mean {share:g}%?" if bare else ""
        raise ValueError(f"must lie between 0% and 100%, not {value!r}{meant}")
    return share


def parse_duration(value: Any) -> float:
    """Convert a duration to seconds: `"24h"`, `"90s"`, `"1h30m"`, or a plain number of seconds. Raises ValueError if it
    is not positive."""
    if isinstance(value, str):
        parts = _DURATION.findall(value)
        if not parts or _DURATION.sub("", value).strip():
            raise ValueError(f"must be a duration such as 90s, 30m, 24h or 7d, not {value!r}")
        seconds = sum(float(amount) * _SECONDS[unit] for amount, unit in parts)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ValueError(f"must be a duration such as 90s, 30m, 24h or 7d, not {value!r}")
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"must be above 0 and at most ten years, not {value!r}")
    return seconds


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B|B)\s*")
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_size(value: Any) -> Any:
    """Convert a size to bytes: `"20MiB"`, `"1.5GB"`. Numbers are returned unchanged. Raises ValueError."""
    if not isinstance(value, str):
        return value
    if found := _SIZE.fullmatch(value):
        return int(Decimal(found[1]) * _BYTES[found[2]])
    if value.isascii() and value.isdigit() and len(value) <= len(str(2**63)):
        return int(value)
    raise ValueError(f"must be a size such as 20MiB, 256KiB or a number of bytes, not {value!r}")


def parse_delay(value: Any) -> float:
    """Convert a duration to seconds: `"24h"`, `"90s"`, `0`, or a plain number of seconds. Raises ValueError if it is
    negative.
    """
    return 0.0 if value is not False and value in (0, "0", "0s") else parse_duration(value)


def parse_usd(value: Any) -> Decimal:
    """Parse a number of US dollars exactly: `0.1` becomes one tenth, and not the nearest binary fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"must be an amount in USD, not {value!r}")
    try:
        usd = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"must be an amount in USD, not {value!r}") from None
    if not usd.is_finite() or usd < 0:
        raise ValueError(f"must be an amount in USD that is not negative, not {value!r}")
    if usd > MOST_USD:
        raise ValueError(f"must be at most {MOST_USD:,} USD, not {value!r}")
    return usd


DEAREST_USD = 10_000
"""Maximum USD per 1M tokens. Real prices are below a tenth of it. A higher figure is probably a price per token or per
1,000 tokens."""


def parse_token_usd(value: Any) -> Decimal:
    """Parse a price in US dollars per 1M tokens. Raises ValueError if it is implausibly high, or if a token would not
    cost a whole number of pico-dollars."""
    usd = parse_usd(value)
    if usd > DEAREST_USD:
        raise ValueError(f"must be USD per 1M tokens, at most {DEAREST_USD:,}, not {value!r}")
    if usd * 10**6 % 1:
        raise ValueError(f"must have at most six decimal places (a pico-dollar a token), not {value!r}")
    return usd


Share = Annotated[float, BeforeValidator(parse_share, json_schema_input_type=float | str)]
DurationS = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=float | str)]
DelayS = Annotated[float, BeforeValidator(parse_delay, json_schema_input_type=float | str)]
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]
Usd = Annotated[Decimal, BeforeValidator(parse_usd, json_schema_input_type=float | str)]
TokenUsd = Annotated[Decimal, BeforeValidator(parse_token_usd, json_schema_input_type=float | str)]


def usd_to_pico(usd: Decimal) -> int:
    return int(usd * PICO_PER_USD)


def pico_to_nano_up(pico: int) -> int:
    """Convert pico-dollars to nano-dollars. The result is rounded up, so that the held money is never less than the
    cost."""
    return -(-pico // PICO_PER_NANO)


def pico_to_usd(pico: int) -> Decimal:
    return Decimal(pico) / PICO_PER_USD


def usd_text(pico: int) -> str:
    """Format an exact amount in US dollars without an exponent: `0.0000015`."""
    return f"{pico_to_usd(pico):f}"


def cents(pico: int | None) -> str:
    """Format an amount in US dollars for display: with two decimals from 1 USD on, with three significant digits
    below."""
    usd = pico_to_usd(abs(pico or 0))
    sign = "-" if (pico or 0) < 0 else ""
    if not usd or usd >= 1:
        return f"{sign}{usd:,.2f}"
    whole, _, part = f"{usd:.{2 - usd.adjusted()}f}".partition(".")
    return f"{sign}{whole}.{part.rstrip('0').ljust(2, '0')}"
