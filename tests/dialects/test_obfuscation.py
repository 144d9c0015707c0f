"""OpenAI's own API sends random texts in its events. They are declined where the client would not get them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.backends.providers.hosted import obfuscates
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.request import DialectName
from tests.support.requests import request_in

DECLINED = {"include_obfuscation": False}


def sent(client: DialectName, backend: DialectName, *, declines: bool, **fields: Any) -> dict[str, Any]:
    request = request_in(client, **fields)
    (wire,) = translators(client, (backend,), obfuscates=declines)
    found: dict[str, Any] = orjson.loads(wire.body(request, "m", None))
    others = translators(client, (backend,), thinks=False)
    assert b"obfuscation" not in others[0].body(request, "m", None), "another backend may refuse the field"
    return found


@pytest.mark.parametrize("client", ["anthropic_messages", "ollama_chat"])
def test_a_translated_stream_declines_them(client: DialectName) -> None:
    chat = sent(client, "openai_chat", declines=True, stream=True)
    assert chat["stream_options"] == {"include_usage": True, **DECLINED}
    assert sent(client, "openai_responses", declines=True, stream=True)["stream_options"] == DECLINED


def test_a_plain_answer_and_a_client_of_the_same_dialect_have_no_such_field() -> None:
    assert "stream_options" not in sent("anthropic_messages", "openai_chat", declines=True, stream=False)
    assert sent("openai_chat", "openai_chat", declines=True, stream=True)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("base_url", "own"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("https://x.openai.azure.com/openai/v1", False),
        ("https://api.groq.com/openai/v1", False),
        ("http://127.0.0.1:8000/v1", False),
        ("https://api.openai.com.example/v1", False),
    ],
)
def test_only_openais_own_addresses_are_known_to_add_them(base_url: str, own: bool) -> None:
    assert obfuscates(Backend(name="b", kind="openai", base_url=base_url, model="gpt-4o")) == own
