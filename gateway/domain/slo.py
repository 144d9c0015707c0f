"""A team's objective for the quality of its answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from gateway.domain.section import Section
from gateway.domain.units import DurationS, Share


class SloPolicy(Section):
    """An objective for the quality of the answers to clients. It is checked for each traffic class."""

    objective: Share | None = Field(
        None, lt=1, description="Wanted mean quality of served answers that were judged; null: it is not watched."
    )
    window: DurationS = Field(2_592_000.0, gt=0, description="Time over which it must hold, e.g. 30d.")


def _bare(value: object) -> object:
    """Accept the objective alone (`slo: 97%`) in place of the section."""
    return {"objective": value} if isinstance(value, str | int | float) else value


Slo = Annotated[SloPolicy, BeforeValidator(_bare, json_schema_input_type=SloPolicy | float | str)]
