"""Tests look at the journal's files in the middle of a scenario; the gateway itself may not."""

from __future__ import annotations

import pytest
from blockbuster import BlockBuster

LOOKING = ("read", "lines", "held", "drained_rows", "drained_text", "left", "without", "away", "policy")


@pytest.fixture(autouse=True)
def tests_may_look(no_blocking_calls: BlockBuster) -> None:
    for function in no_blocking_calls.functions.values():
        for module in ("journal", "writer", "spending", "crash", "alerts", "slots"):
            function.can_block_in(f"tests/ledger/test_{module}.py", LOOKING)
