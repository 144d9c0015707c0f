"""Names of service tiers, as providers write them and as the ledger does."""

from __future__ import annotations

import pytest

from gateway.dialects.answers.service_tiers import LONGEST, normalised


@pytest.mark.parametrize(
    "usual",
    [None, "", "default", "standard", "auto", "on_demand", "standard_only", "ON_DEMAND", " default ", 7, {}, []],
)
def test_the_standard_tier_has_no_name(usual: object) -> None:
    assert normalised(usual) == ""
    assert normalised(usual, "standard", "global") == ""
    assert normalised(usual, None, "not_available") == ""


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (("priority",), "priority"),
        (("Flex",), "flex"),
        (("fast",), "priority"),
        (("ON_DEMAND_PRIORITY",), "priority"),
        (("scale",), "scale"),
        (("standard", "fast", "global"), "fast"),
        (("standard", None, "us"), "us"),
        (("standard", "fast", "us"), "fast+us"),
        (("priority", "standard", "us"), "priority+us"),
        (("flex", "fast", None), "fast+flex"),
    ],
)
def test_parts_are_joined_in_alphabetical_order(fields: tuple[object, ...], name: str) -> None:
    assert normalised(*fields) == name


def test_a_name_from_a_backend_is_short_and_has_none_of_the_ledgers_separators() -> None:
    assert normalised("a+b,c=d:e\n") == "a_b_c_d:e"
    assert len(normalised("x" * 10_000)) == LONGEST
