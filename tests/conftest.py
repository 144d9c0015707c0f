"""What every test gets: no blocking call in the event loop goes unnoticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[BlockBuster]:
    """A blocking call made by `gateway` inside the loop fails the test."""
    with blockbuster_ctx("gateway") as buster:
        yield buster
