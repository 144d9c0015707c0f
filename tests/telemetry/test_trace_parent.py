"""A client's `traceparent`: what is valid is continued, anything else is ignored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway.domain.record import Record
from gateway.settings.gateway import TelemetrySettings
from gateway.state.redis.connection import State
from gateway.telemetry.observe import Telemetry
from gateway.telemetry.trace_parent import TraceParent, read_parent
from tests.telemetry.conftest import Receiver, observed, served

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
Send = Callable[..., Awaitable[None]]


@pytest.fixture
def send(state: State, receiver: Receiver) -> Send:
    """Let a record end that came with these headers, and wait until the collector has its spans."""

    async def send(seen: Record, *, sample: float = 0.0, client_sampled: bool = True, **headers: str) -> None:
        settings = TelemetrySettings(access_log=False, sample=sample, client_sampled=client_sampled)
        telemetry = Telemetry(settings, state)
        await telemetry.open()
        seen.trace = {name.encode(): value.encode() for name, value in headers.items()}
        with observed(telemetry, seen):
            pass
        await telemetry.aclose()

    return send


def server(receiver: Receiver) -> Span:
    (span,) = (span for span in receiver.spans if span.kind == Span.SPAN_KIND_SERVER)
    return span


async def test_the_clients_span_is_the_parent_of_the_requests(receiver: Receiver, send: Send) -> None:
    await send(served(), traceparent=PARENT, tracestate="vendor=a:1,other=2")
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
    span = server(receiver)
    assert span.parent_span_id.hex() == SPAN
    (call,) = (span for span in receiver.spans if span.kind == Span.SPAN_KIND_CLIENT)
    assert call.parent_span_id == span.span_id
    assert {one.trace_state for one in receiver.spans} == {"vendor=a:1,other=2"}


@pytest.mark.parametrize("said", ["", "00-aa-bb-01", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01"])
async def test_without_a_valid_one_a_trace_begins_here(receiver: Receiver, send: Send, said: str) -> None:
    await send(served(), sample=1.0, **({"traceparent": said} if said else {}), tracestate="vendor=a")
    span = server(receiver)
    assert span.trace_id.hex() != TRACE
    assert not span.parent_span_id
    assert not span.trace_state


async def test_what_the_client_keeps_is_exported_unless_the_operator_says_otherwise(
    receiver: Receiver, send: Send
) -> None:
    await send(served(), traceparent=PARENT, client_sampled=False)
    await send(served(), traceparent=f"00-{TRACE}-{SPAN}-00")
    assert receiver.spans == []
    await send(served(), traceparent=PARENT)
    assert server(receiver).trace_id.hex() == TRACE


async def test_what_is_eventful_is_kept_also_in_a_trace_that_the_client_does_not_keep(
    receiver: Receiver, send: Send
) -> None:
    await send(served(status=502, error="all_backends_failed"), traceparent=f"00-{TRACE}-{SPAN}-00")
    assert (server(receiver).trace_id.hex(), server(receiver).parent_span_id.hex()) == (TRACE, SPAN)


@pytest.mark.parametrize(
    "said",
    [
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01-{'x' * 500}",
        f"01-{TRACE}-{SPAN}-01-{'x' * 500}",
        f"01-{TRACE}-{SPAN}-01x",
    ],
)
def test_what_is_no_traceparent_is_ignored(said: str) -> None:
    assert read_parent({b"traceparent": said.encode()}) is None


def test_later_versions_may_say_more_and_too_much_state_is_left_out() -> None:
    headers = {b"traceparent": f"01-{TRACE}-{SPAN}-03-more".encode(), b"tracestate": b"a=" + b"x" * 600}
    assert read_parent(headers) == TraceParent(int(TRACE, 16), int(SPAN, 16), sampled=True, state="")
