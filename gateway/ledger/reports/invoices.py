"""Reads files in which providers export usage and cost."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

import orjson

from gateway.domain.units import usd_to_pico
from gateway.settings.files import ConfigError

Dialect = Literal["openai", "anthropic", "generic"]
DAY_S = 86400.0
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": ("request_id", "x_request_id", "client_request_id", "id"),
    "at": ("date", "usage_date_utc", "start_time", "start_time_iso", "starting_at", "timestamp", "day"),
    "model": ("model", "model_version", "snapshot_id", "line_item"),
    "requests": ("requests", "n_requests", "num_model_requests"),
    "input": ("input_tokens", "n_context_tokens_total", "prompt_tokens"),
    "output": ("output_tokens", "n_generated_tokens_total", "completion_tokens"),
    "usd": ("cost_usd", "usd", "amount_usd", "cost", "amount_value", "amount"),
    "cents": ("amount_cents",),
}
"""Field → column names that are accepted for it, in order of preference. A field without a column is not compared."""
ANTHROPIC_INPUT = (
    *("uncached_input_tokens", "usage_input_tokens_no_cache"),
    *("cache_read_input_tokens", "usage_input_tokens_cache_read"),
    *("cache_creation_input_tokens", "usage_input_tokens_cache_write_5m", "usage_input_tokens_cache_write_1h"),
    *("cache_creation_ephemeral_5m_input_tokens", "cache_creation_ephemeral_1h_input_tokens"),
)
"""Columns of Anthropic's classes of input tokens. Each token is in one class. The sum of the classes is what other
providers call input tokens."""
_DATED = re.compile(r"([-@]\d{4}-\d{2}-\d{2}|[-@]\d{8})$")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an export. `at`: Unix seconds. `pico`: cost in pico-dollars. A field is None if the line has no value
    for it."""

    at: float
    model: str = ""
    id: str = ""
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    pico: int | None = None


@dataclass(frozen=True, slots=True)
class Invoice:
    """The lines of a provider's export."""

    lines: tuple[Line, ...]

    @property
    def by_request(self) -> bool:
        return bool(self.lines) and all(line.id for line in self.lines)

    def period(self) -> tuple[float, float]:
        """The start and end of the invoice's period, in Unix seconds. The period has all days (UTC) from the first to
        the last line."""
        first, last = (pick(line.at for line in self.lines) for pick in (min, max))
        return first // DAY_S * DAY_S, (math.floor(last / DAY_S) + 1) * DAY_S


def read(path: Path, dialect: Dialect) -> Invoice:
    """Read an export: a CSV file with a header, a JSON list, or a page of the provider's usage API. Raises ConfigError,
    which names the file and the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        records = list(_json(text) if text.lstrip()[:1] in ("{", "[") else csv.DictReader(io.StringIO(text)))
        lines = tuple(_line(record, dialect, f"{path}: line {number}") for number, record in enumerate(records, 1))
    except (OSError, UnicodeDecodeError, orjson.JSONDecodeError, csv.Error) as error:
        raise ConfigError([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]) from error
    if not lines:
        raise ConfigError([f"{path}: has no lines; export the usage of a period in which there was some"])
    return Invoice(lines)


def plain(model: str) -> str:
    """The model's name for comparisons: in lower case, without prefix, date, and any text after a comma."""
    return _DATED.sub("", model.split(",")[0].strip().rsplit("/", 1)[-1].lower())


def _json(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON list or of a page of a usage API. A page has buckets with results; each result gets
    the time of its bucket."""
    found = orjson.loads(text)
    for bucket in found.get("data", [found]) if isinstance(found, dict) else found:
        if not isinstance(bucket, dict):
            continue
        results = bucket.get("results", bucket.get("result"))
        times = {name: bucket[name] for name in COLUMNS["at"] if name in bucket}
        for result in results if isinstance(results, list) else [bucket]:
            yield {**times, **_flat(result)}


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested objects: `{"amount": {"value": 1}}` → `{"amount_value": 1}`."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found |= {f"{name}_{key}": one for key, one in _flat(value).items()}
        else:
            found[name] = value
    return found


def _line(record: Mapping[str, Any], dialect: Dialect, where: str) -> Line:
    facts = {str(name).strip().lower(): value for name, value in record.items() if name and value not in (None, "")}
    try:
        at = _first(facts, "at")
        if at is None:
            raise ValueError(f"has no time; a column must be called {', '.join(COLUMNS['at'])}")
        input_tokens = _count(_first(facts, "input"))
        if dialect == "anthropic":
            classes = [_count(facts[name]) or 0 for name in ANTHROPIC_INPUT if name in facts]
            input_tokens = sum(classes) if classes else input_tokens
        return Line(
            _time(at),
            str(_first(facts, "model") or ""),
            str(_first(facts, "id") or ""),
            _count(_first(facts, "requests")),
            input_tokens,
            _count(_first(facts, "output")),
            _money(facts, dialect),
        )
    except ValueError as error:
        raise ConfigError([f"{where}: {error}"]) from error


def _first(facts: Mapping[str, Any], what: str) -> Any:
    return next((facts[name] for name in COLUMNS[what] if name in facts), None)


def _time(value: Any) -> float:
    """Convert `value` to Unix seconds. `value`: a number (Unix seconds) or an ISO 8601 text. A text without a zone is
    in UTC."""
    try:
        return float(value)
    except ValueError:
        at = datetime.fromisoformat(str(value).strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _count(value: Any) -> int | None:
    if value is None:
        return None
    number = _decimal(value)
    if number < 0 or number % 1:
        raise ValueError(f"{value!r} is no count of tokens or requests")
    return int(number)


def _money(facts: Mapping[str, Any], dialect: Dialect) -> int | None:
    """The line's cost in pico-dollars. `amount` in Anthropic's cost API is in cents; other providers use dollars."""
    currency = str(facts.get("currency") or facts.get("amount_currency") or "usd").lower()
    if currency != "usd":
        raise ValueError(f"the currency is {currency!r}; only USD can be compared")
    cents = _first(facts, "cents")
    if cents is None and dialect == "anthropic" and "cost_usd" not in facts:
        cents = facts.get("amount")
    if cents is not None:
        return usd_to_pico(_decimal(cents) / 100)
    usd = _first(facts, "usd")
    return None if usd is None else usd_to_pico(_decimal(usd))


def _decimal(value: Any) -> Decimal:
    try:
        number = Decimal(str(value).strip().removeprefix("$").replace(",", ""))
    except InvalidOperation:
        raise ValueError(f"{value!r} is no number") from None
    if not number.is_finite():
        raise ValueError(f"{value!r} is no number")
    return number
