"""Kind `thriftgate`: another Thriftgate, which calls the providers.

Each call contains:

- the gateways that it has passed, so that a loop ends at once;
- the attempt and the team, as tags for the upstream gateway's ledger;
- pseudonyms of the session and of the scope within which answers may be reused;
- the time and the money that are left for the request.

The upstream gateway answers with its cost or its prices (`gateway/ledger/prices/upstream.py`).
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from gateway.backends.providers.base import Call
from gateway.backends.providers.openai import OpenAI
from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.domain.request import Controls
from gateway.domain.units import NANO_PER_USD

_LEAST_S = 0.001


class Thriftgate(OpenAI):
    """A gateway upstream of this one. It speaks OpenAI's dialects and Anthropic's messages."""

    def __init__(self, backend: Backend, instance: str = "gateway") -> None:
        """`instance`: the id of this gateway in the list of hops."""
        super().__init__(backend)
        self._instance = instance

    def lines(self, call: Call) -> bytes:
        controls = call.request.controls
        lines = [f"x-request-id: {call.attempt_id}", f"x-thriftgate-hops: {','.join((*controls.hops, self._instance))}"]
        left_s = call.deadline - asyncio.get_running_loop().time()
        lines.append(f"x-thriftgate-deadline: {max(left_s, _LEAST_S):.3f}")
        if controls.priority:
            lines.append(f"x-thriftgate-priority: {controls.priority}")
        if (record := call.record) is not None:
            lines.append(f"x-thriftgate-tags: caller_attempt={call.attempt_id},caller_team={record.tenant.team}")
            lines.append(f"x-thriftgate-cache-scope: {_cache_scope(record, controls)}")
            if record.session:
                lines.append(f"x-thriftgate-session: {pseudonym(record)}")
        if call.hold is not None and (left := call.hold.left_nano()) is not None:
            lines.append(f"x-thriftgate-max-usd: {left / NANO_PER_USD:.9f}")
        return "\r\n".join(lines).encode("ascii", "replace") + b"\r\n"


def _cache_scope(record: Record, controls: Controls) -> str:
    """The scope of answers in the upstream gateway's cache. It is needed because all teams share one key there.

    The scope is the team, or the key if the team's policy does not share answers between its keys. If the client is
    a gateway that has sent a scope, that scope is included.
    """
    tenant = record.tenant
    key = tenant.key.lineage if tenant.policy.cache.scope == "key" else ""
    scope = f"{controls.cache_scope}\0{tenant.organisation}\0{tenant.team}\0{key}"
    return blake2b(scope.encode(), digest_size=12).hexdigest()


def pseudonym(record: Record) -> str:
    """The id of the session for the upstream gateway. A pseudonym is needed because sessions of all teams share one
    key there.
    """
    return blake2b(f"{record.tenant.team}\0{record.session}".encode(), digest_size=12).hexdigest()
