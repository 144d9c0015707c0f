"""Kind `thriftgate`: another Thriftgate, which calls the providers.

Each call names the gateways that it has passed, so that a loop ends at once; the attempt and the team, as tags of the
upstream gateway's ledger; the session, as a pseudonym; the time and the money that the request may still take. The
upstream gateway answers with its cost or its prices (`gateway/ledger/prices/upstream.py`).
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from gateway.backends.providers.base import Call
from gateway.backends.providers.openai import OpenAI
from gateway.domain.backend import Backend
from gateway.domain.record import Record
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
            if record.session:
                lines.append(f"x-thriftgate-session: {_pseudonym(record)}")
        if call.hold is not None and (left := call.hold.left_nano()) is not None:
            lines.append(f"x-thriftgate-max-usd: {left / NANO_PER_USD:.9f}")
        return "\r\n".join(lines).encode("ascii", "replace") + b"\r\n"


def _pseudonym(record: Record) -> str:
    """The session's id for the upstream gateway, where sessions of all teams share one key."""
    return blake2b(f"{record.tenant.team}\0{record.session}".encode(), digest_size=12).hexdigest()
