"""The door: every pair of dialects that is spoken."""

from __future__ import annotations

from typing import Literal

import pytest

from gateway.dialects.base import Plain, StreamReader, Translator
from gateway.dialects.registry import wire
from gateway.domain.request import DialectName
from tests.dialects.samples import golden, streaming
from tests.support.requests import chat_request


@pytest.mark.parametrize(
    ("backend", "plain", "stream"),
    [
        ("openai_chat", "llamacpp_chat.json", "llamacpp_chat.sse"),
        ("anthropic_messages", "llamacpp_messages.json", "llamacpp_messages_headless.sse"),
    ],
)
def test_every_pair_keeps_the_whole_promise(backend: DialectName, plain: str, stream: str) -> None:
    way: Translator = wire("openai_chat", backend)
    assert (way.client, way.backend) == ("openai_chat", backend)
    whole = way.plain(chat_request(), golden(plain))
    assert isinstance(whole, Plain)
    reader: StreamReader = way.reader(streaming())
    relayed = reader.feed(golden(stream))
    reader.eof()
    assert reader.ended
    assert relayed
    assert reader.ending == b"data: [DONE]\n\n"
    assert reader.chunks > 8
    assert reader.confidence is None
    assert reader.finish == whole.finish == "length"
    assert reader.delivered_text() == whole.text


@pytest.mark.parametrize("client", ["openai_embeddings", "klingon"])
def test_a_pair_that_nobody_speaks_is_a_key_error(client: Literal["openai_embeddings"]) -> None:
    with pytest.raises(KeyError):
        wire(client, "anthropic_messages")
