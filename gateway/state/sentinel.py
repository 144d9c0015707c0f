"""Asks Redis Sentinel who the master is."""

from __future__ import annotations

from dataclasses import replace

from gateway.errors import StateUnavailable
from gateway.state.address import Address
from gateway.state.link import dial


async def find_master(address: Address, timeout_s: float) -> Address:
    """The first sentinel that knows decides. Raises StateUnavailable when none does."""
    reasons = []
    for host in address.hosts:
        seed = Address("tcp", (host,), password=address.sentinel_password, tls=address.tls)
        try:
            link = await dial(seed, timeout_s)
            try:
                (found,) = await link.exchange([("SENTINEL", "get-master-addr-by-name", address.service)], timeout_s)
            finally:
                await link.aclose()
        except StateUnavailable as error:
            reasons.append(str(error))
            continue
        if isinstance(found, list) and len(found) == 2:
            return replace(address, kind="tcp", hosts=((found[0].decode(), int(found[1])),))
        reasons.append(f"{seed} knows no master called {address.service!r}")
    raise StateUnavailable("; ".join(reasons))
