"""Reads a sum's starting value from its source, with the instant at which it was true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.errors import StateUnavailable
from gateway.state.leases.counter import Lease

_PATIENCE_S = 5.0


async def read_base(lease: Lease, mark: Callable[[], int], reads: int) -> str:
    """`SETTLED:MARK`: all that was settled before the mark, as the script reads it. Raises StateUnavailable.

    What is settled while it is being read counts twice. So it is read up to `reads` times, until two in a row agree:
    in between, nothing was.
    """
    assert lease.rebuild is not None
    since, settled = mark(), -1
    try:
        async with asyncio.timeout(_PATIENCE_S):
            for _ in range(reads):
                since, before = mark(), settled
                settled = await lease.rebuild()
                if settled == before:
                    break
    except Exception as error:
        raise StateUnavailable(f"{lease.key} cannot be rebuilt: {error!r}") from error
    return f"{max(0, settled)}:{since}"
