"""The section `prices:` of gateway.yaml: discounts, prepaid credits, a second currency for reports."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations

from pydantic import Field, field_validator, model_validator

from gateway.domain.section import Section
from gateway.domain.units import Usd


class Term(Section):
    """The calls and the period to which a discount or credit applies. Days begin at midnight UTC."""

    backend: str | None = Field(None, description="Applies to this backend.")
    provider: str | None = Field(
        None, description="Applies to all backends of this provider, by its name in the price list."
    )
    valid_from: date | None = Field(None, description="First day.")
    valid_until: date | None = Field(None, description="First day on which it no longer applies.")

    @model_validator(mode="after")
    def _one_target_and_some_time(self) -> Term:
        if (self.backend is None) == (self.provider is None):
            raise ValueError("give either backend or provider")
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise ValueError("valid_until must be after valid_from")
        return self

    @property
    def target(self) -> str:
        return f"backend {self.backend}" if self.backend is not None else f"provider {self.provider}"

    def holds(self, on: date) -> bool:
        return (self.valid_from is None or self.valid_from <= on) and (
            self.valid_until is None or on < self.valid_until
        )

    def period(self) -> tuple[float | None, float | None]:
        """The period `[since, until)` in Unix seconds. A missing begin or end is None."""
        return _midnight(self.valid_from), _midnight(self.valid_until)

    def overlaps(self, other: Term) -> bool:
        begins = max(self.valid_from or date.min, other.valid_from or date.min)
        ends = min(self.valid_until or date.max, other.valid_until or date.max)
        return self.target == other.target and begins < ends


class Discount(Term):
    """A discount on list prices."""

    percent: Decimal = Field(gt=0, le=100, description="Deducted from every token's price.")


class Credit(Term):
    """A prepaid or committed amount. Reports show how much of it has been used."""

    name: str = Field(min_length=1, max_length=64, description="Name in reports.")
    usd: Usd = Field(description="Amount in USD.")
    use_first: bool | None = Field(
        None,
        description="Whether routing prefers its backends until the amount is used up. Null: if it has `valid_until`, "
        "because the rest is lost then.",
    )

    @property
    def preferred(self) -> bool:
        """Whether routing prefers the backends of this credit until the credit is used up."""
        return self.valid_until is not None if self.use_first is None else self.use_first


class Currency(Section):
    """A second currency that reports show next to USD. Ledger, budgets and exports stay in USD."""

    code: str = Field(pattern="^[A-Z]{3}$", description="ISO 4217, such as EUR.")
    per_usd: Decimal = Field(gt=0, le=10**7, description="Amount that equals one USD: a fixed rate.")
    as_of: date = Field(description="Date of the rate.")


class PriceSettings(Section):
    currency: Currency | None = Field(None, description="Also shown in tables.")
    discounts: tuple[Discount, ...] = Field((), description="Discounts negotiated with providers.")
    credits: tuple[Credit, ...] = Field((), description="Commitments and prepaid credits.")

    @field_validator("discounts")
    @classmethod
    def _one_at_a_time(cls, discounts: tuple[Discount, ...]) -> tuple[Discount, ...]:
        for one, other in combinations(discounts, 2):
            if one.overlaps(other):
                raise ValueError(
                    f"two discounts for {one.target} apply at the same time; let one end before the other begins"
                )
        return discounts

    @field_validator("credits")
    @classmethod
    def _names_differ(cls, credits: tuple[Credit, ...]) -> tuple[Credit, ...]:
        names = [credit.name for credit in credits]
        if len(set(names)) < len(names):
            raise ValueError("two credits have the same name; give each its own")
        return credits


def _midnight(day: date | None) -> float | None:
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
