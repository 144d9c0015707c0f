"""A budget of a policy: its limit, its window, and the effect of reaching the limit."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal
from zoneinfo import ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from gateway.domain.money.windows import zone_named
from gateway.domain.notify import Notify
from gateway.domain.section import Section
from gateway.domain.units import MOST_COUNT, Share, Usd


def _known_zone(value: str) -> str:
    try:
        zone_named(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder of zones, such as America
        raise ValueError(f"unknown time zone {value!r}; use an IANA name such as Europe/Madrid") from None
    return value


Timezone = Annotated[str, AfterValidator(_known_zone)]


class Budget(Section):
    """The amount that may be spent in each window. The limit is in US dollars, or in tokens; tokens of free calls do
    not count."""

    name: str = Field(
        "", max_length=64, description="How refusals, alerts and headers call it; empty: by its window and level."
    )
    per: Literal["organisation", "team", "key", "end_user", "session"] = Field(
        "team",
        description="Who shares it: the whole team, or each key, end user or session has one; organisation: see there.",
    )
    limit_usd: Usd | None = Field(None, description="US dollars per window.")
    limit_tokens: int | None = Field(
        None,
        gt=0,
        le=MOST_COUNT,
        description="Instead: tokens per window, input and output, of backends that are not free.",
    )
    window: Literal["hour", "day", "week", "month", "total"] = Field("month", description="Calendar window.")
    timezone: Timezone = Field("UTC", description="IANA zone in which windows begin.")
    hard: bool = Field(True, description="false: it is never enforced; alerts and a header tell that it is spent.")
    alerts: tuple[Literal["forecast"] | Share, ...] = Field(
        (0.5, 0.8, 1.0), description="Shares of the limit, and forecast."
    )
    notify: tuple[Notify, ...] = Field((), description="Receivers of alerts.")
    on_exhausted: Literal["refuse", "downgrade", "finish", "truncate"] = Field(
        "refuse",
        description="What costs nothing is still served, except with refuse. Near the limit answers of text are asked "
        "for with a lower max_tokens; truncate lowers it to what is left, finish never does and may overdraw. warn "
        "refuses nothing: alerts and a header tell that it is spent.",
    )
    on_unpriced: Literal["refuse", "allow"] = Field(
        "refuse",
        description="What has no known price, where a hard budget in US dollars could not be kept: a hosted backend, a "
        "service tier, a fee.",
    )
    on_state_loss: Literal["refuse", "allow"] = Field(
        "refuse", description="When counters are out of reach and the lease is spent."
    )

    @field_validator("limit_usd")
    @classmethod
    def _above_zero(cls, value: Decimal | None) -> Decimal | None:
        if value is not None and value <= 0:
            raise ValueError("must be above 0")
        return value

    @model_validator(mode="after")
    def _one_limit(self) -> Budget:
        if (self.limit_usd is None) == (self.limit_tokens is None):
            raise ValueError("give either limit_usd or limit_tokens")
        return self

    @property
    def title(self) -> str:
        """The name of the budget. A budget without a name gets one from its window and subject, such as `month` or
        `day per key`.
        """
        return self.name or (self.window if self.per == "team" else f"{self.window} per {self.per.replace('_', ' ')}")


def _one_or_many(value: object) -> object:
    if value is None:
        return ()
    return (value,) if isinstance(value, dict | Budget) else value


Budgets = Annotated[
    tuple[Budget, ...], BeforeValidator(_one_or_many, json_schema_input_type=Budget | list[Budget] | None)
]
