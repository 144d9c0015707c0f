"""Kind `litellm_proxy`: a LiteLLM proxy, which calls the providers.

The proxy gets the list of gateways that the request has passed. It also gets the facts that the backend's
`litellm_headers` lists, in LiteLLM's own headers. Its answers have their cost in `x-litellm-response-cost`
(`gateway/ledger/prices/upstream.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.backends.providers.base import Call, Upstream
from gateway.backends.providers.openai import OpenAI
from gateway.backends.providers.thriftgate import pseudonym
from gateway.domain.backend import Backend

_NOTED: Mapping[str, bytes] = {
    "call_id": b"x-litellm-call-id",
    "model_id": b"x-litellm-model-id",
    "model": b"x-litellm-model-name",
    "fallbacks": b"x-litellm-attempted-fallbacks",
}
"""Name in the request's notes → header of the proxy's answer."""
_PLAIN = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")


class LitellmProxy(OpenAI):
    """A LiteLLM proxy upstream of this gateway. It speaks OpenAI's dialects and Anthropic's messages."""

    def __init__(self, backend: Backend, instance: str = "gateway") -> None:
        """`instance`: the id of this gateway in the list of hops."""
        super().__init__(backend)
        self._instance, self._wanted = instance, frozenset(backend.litellm_headers)

    def lines(self, call: Call) -> bytes:
        hops = ",".join((*call.request.controls.hops, self._instance))
        lines = [f"x-request-id: {call.attempt_id}", f"x-thriftgate-hops: {hops}"]
        record = call.record
        if "call_id" in self._wanted:
            lines.append(f"x-litellm-call-id: {call.attempt_id}")
        if record is not None:
            if "session" in self._wanted and record.session:
                lines.append(f"x-litellm-session-id: {pseudonym(record)}")
            if "tags" in self._wanted:
                lines.append(f"x-litellm-tags: team:{record.tenant.team},attempt:{call.attempt_id}")
            if "end_user" in self._wanted and record.end_user:
                lines.append(f"x-litellm-end-user-id: {record.end_user}")
        return "\r\n".join(lines).encode("ascii", "replace") + b"\r\n"

    async def send(self, call: Call) -> Upstream:
        """Send the call, and record the id and the model under which the proxy stores it."""
        upstream = await super().send(call)
        if call.record is not None:
            found = {name: upstream.header(header) or b"" for name, header in _NOTED.items()}
            facts = {name: value.decode() for name, value in found.items() if _PLAIN.fullmatch(value)}
            call.record.note("answered by LiteLLM", **facts)
        return upstream
