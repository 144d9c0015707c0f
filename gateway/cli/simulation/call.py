"""One call in a log. Readers of all kinds of logs produce this form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

from gateway.dialects.answers.usage import ABSURD_TOKENS, any_usage
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.domain.money.usage import Usage
from gateway.domain.request import DialectName
from gateway.domain.units import usd_to_pico

Object = Mapping[str, Any]
_ABSURD_USD = 10**9
"""If the cost of one call is this number of US dollars or more, the cost is rejected as impossible."""


class LogError(ValueError):
    """Raised if a log cannot be read. The message names the line and the remedy."""


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """A call that was answered. `at`: Unix time in seconds."""

    id: str
    at: float
    model: str
    usage: Usage
    cost_pico: int | None = None
    """The cost in the log, in pico-dollars; None if the log has none."""
    session: str = ""
    dialect: DialectName = "openai_chat"
    messages: Sequence[Any] = ()
    count: int = 0
    """Number of `messages` that this call sent. Calls of one session share the list."""
    fields: Object = field(default_factory=dict)
    """The other fields of the body."""
    hidden_tools: bool = False
    """Whether the call had tools that the log does not contain."""
    from_cache: bool = False

    def body(self, model: str) -> bytes | None:
        """The body of the request as JSON, with the model name `model`. None if the log has no prompt."""
        if not self.count:
            return None
        return orjson.dumps({**self.fields, "model": model, "messages": list(self.messages[: self.count])})


def moment(value: object) -> float:
    """Convert an ISO date or a number to Unix seconds. A date without a zone is in UTC. Raises LogError."""
    if isinstance(value, int | float) and math.isfinite(value):
        return value / 1000 if value > 1e11 else float(value)
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise LogError(f"{value!r} is no date") from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def pico(usd: object) -> int | None:
    """Convert an amount in USD to pico-dollars; None if it is missing, impossible or not an amount."""
    try:
        amount = Decimal(str(usd))
    except InvalidOperation:
        return None
    return usd_to_pico(amount) if amount.is_finite() and 0 <= amount < _ABSURD_USD else None


def decoded(value: object) -> Any:
    """Decode a JSON value. Databases export such a value as text, so a text that contains JSON is decoded too. Other
    text is returned unchanged."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def tokens(value: object) -> int:
    """Read a number of tokens. An impossible number, or a value that is no number, counts as 0."""
    try:
        found = int(str(value))
    except ValueError:
        return 0
    return found if 0 <= found < ABSURD_TOKENS else 0


def reported(value: object) -> Usage | None:
    """The usage that the provider reported, in any provider's format; None if it has no counts."""
    if isinstance(value, dict) and "input_tokens" in value and "total_tokens" not in value:
        return messages_usage(value)
    return any_usage(value)
