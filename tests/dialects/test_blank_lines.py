"""Any number of blank lines may stand between the events of a stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gateway.dialects.anthropic_messages.relay import MessagesRelay
from gateway.dialects.openai_chat.stream import ChatStream
from gateway.dialects.openai_responses.relay import ResponsesRelay
from loadtests.agent_answers import made
from loadtests.questions import Dialect

READERS: dict[Dialect, Callable[[], Any]] = {
    "chat": partial(ChatStream, wants_usage=True),
    "messages": MessagesRelay,
    "responses": ResponsesRelay,
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("blanks", range(6))
@pytest.mark.parametrize("dialect", READERS)
def test_further_line_breaks_after_an_event_change_nothing(dialect: Dialect, blanks: int) -> None:
    events = [event + b"\n" * blanks for event in made(dialect, 20)]
    for step in (1, 3, len(events)):
        reader, relayed = READERS[dialect](), b""
        for at in range(0, len(events), step):
            relayed += reader.feed(b"".join(events[at : at + step]))
        assert reader.ended
        assert relayed.replace(b"\n", b"") + reader.ending.replace(b"\n", b"") == _plain(dialect)
        assert reader.usage == _usage(dialect)


def _plain(dialect: Dialect) -> bytes:
    reader = READERS[dialect]()
    relayed: bytes = reader.feed(b"".join(made(dialect, 20)))
    return (relayed + reader.ending).replace(b"\n", b"")


def _usage(dialect: Dialect) -> object:
    reader = READERS[dialect]()
    reader.feed(b"".join(made(dialect, 20)))
    assert reader.usage is not None
    return reader.usage
