"""Every recorded exchange, replayed against a running gateway: no byte on the wire has changed."""

from __future__ import annotations

import asyncio

import pytest

from tests.recorded.cases import all_cases
from tests.recorded.compare import report
from tests.recorded.recorder import record, recorded


@pytest.mark.heavy
@pytest.mark.timeout(300)  # processes start, on a machine that is busy
def test_no_byte_of_any_recorded_exchange_has_changed() -> None:
    """What is meant to change: `python -m tests.recorded --write`, and review the difference."""
    found = report(recorded(), asyncio.run(record(all_cases())))
    assert not found, f"\n{found}\n\nIf this is meant: python -m tests.recorded --write"


def test_every_case_has_its_recording() -> None:
    names = [case.name for case in all_cases()]
    assert [row["name"] for row in recorded()] == names
    assert len(set(names)) == len(names)
