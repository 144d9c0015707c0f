"""docs/explanation/dialects.md against the code: who reaches whom, what is refused or left out, shapes of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import yaml

from gateway.dialects.clients import PATHS, at
from gateway.dialects.facts import FACTS
from gateway.dialects.registry import wire
from gateway.dialects.via_chat import ViaChat
from gateway.domain.request import Controls, DialectName
from gateway.errors import BadRequest
from tests.docs.markdown import ROOT, table

PAGE = ROOT / "docs" / "explanation" / "dialects.md"
SHORT: dict[str, DialectName] = {
    "chat": "openai_chat",
    "messages": "anthropic_messages",
    "responses": "openai_responses",
    "completions": "openai_completions",
    "converse": "bedrock_converse",
    "gemini": "gemini_generate",
    "ollama": "ollama_chat",
}
ASKED: dict[str, dict[str, Any]] = {
    "openai_chat": {"messages": [{"role": "user", "content": "Hello"}]},
    "anthropic_messages": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100},
    "openai_responses": {"input": "Hello"},
    "openai_completions": {"prompt": "Hello"},
}
MODEL = "claude-sonnet-4-6"


def test_who_reaches_whom_is_as_told() -> None:
    rows = table("ways", PAGE)
    assert sorted(row[0].strip("`") for row in rows) == sorted(FACTS)
    for client, path, *cells, own in rows:
        name = client.strip("`")
        assert at(path.strip("`"))
        backends = ["openai_chat", "anthropic_messages", "openai_responses"]
        backends += ["bedrock_converse", "gemini_generate", "ollama_chat"]
        assert cells == [way(name, backend) for backend in backends]
        assert own == ("" if name in backends else way(name, name))


def way(client: Any, backend: Any) -> str:
    try:
        found = wire(client, backend)
    except KeyError:
        return "–"
    translates = isinstance(found, ViaChat) or found.client != found.backend
    return "translated" if translates else "passes"


def fields_of(column: int) -> Iterator[Any]:
    """(client, backend, a field with a value) of a column, `as over chat` spelled out."""
    rows = {(row[0], row[1]): row for row in table("refused", PAGE)}
    for (client, backend), row in rows.items():
        cells = [row[column]]
        if cells[0].startswith("as over chat"):
            cells.append(rows[client, "chat"][column])
        for cell in cells:
            for code in re.findall(r"`([^`]+)`", cell):
                yield pytest.param(SHORT[client], SHORT[backend], yaml.safe_load(code), id=f"{client}-{backend}-{code}")


def body_sent(client: DialectName, backend: DialectName, more: dict[str, Any]) -> dict[str, Any]:
    """What goes to the backend."""
    (spoken,) = [PATHS[path.strip("`")] for name, path, *_ in table("ways", PAGE) if name.strip("`") == client]
    body = orjson.dumps({"model": "a-model", **ASKED[client], **more})
    found: dict[str, Any] = orjson.loads(
        wire(client, backend).body(spoken.parse(body, "req_1", Controls(), {}), MODEL, None)
    )
    return found


@pytest.mark.parametrize(("client", "backend", "field"), [*fields_of(2)])
def test_what_cannot_be_said_is_refused_by_name(
    client: DialectName, backend: DialectName, field: dict[str, Any]
) -> None:
    body_sent(client, backend, {})
    with pytest.raises(BadRequest) as refused:
        body_sent(client, backend, field)
    (name,), told = field, refused.value.param
    assert told
    assert told.startswith(name) or name.endswith(told)  # chat's name of it, in a request that was translated


@pytest.mark.parametrize(("client", "backend", "field"), [*fields_of(3)])
def test_what_is_left_out_changes_nothing(client: DialectName, backend: DialectName, field: dict[str, Any]) -> None:
    assert body_sent(client, backend, field) == body_sent(client, backend, {})
