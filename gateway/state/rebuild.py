"""Reads from the ledger the value with which a counter of the kind `sum` starts, and the time at which this value was
valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.errors import StateUnavailable
from gateway.state.leases.counter import Lease

_PATIENCE_S = 5.0


async def read_base(lease: Lease, mark: Callable[[], int], reads: int) -> str:
    """Read the starting value of a counter of the kind `sum`. Returns text for the Lua script: `SETTLED:MARK`, the
    units that were settled before MARK. Raises StateUnavailable.

    `mark()` returns the present time in steps of 10 ms. `reads`: maximum number of reads; reading ends earlier when
    two reads are equal.
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
