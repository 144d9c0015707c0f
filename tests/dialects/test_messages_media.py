"""Images and files of OpenAI's parts as Anthropic's blocks."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from gateway.errors import BadRequest
from tests.dialects.over_anthropic import sent

TEXT = b64encode("año".encode()).decode()


def shown(*parts: dict[str, Any]) -> Any:
    return sent(messages=[{"role": "user", "content": list(parts)}])["messages"][0]["content"]


def file(**given: str) -> dict[str, Any]:
    return {"type": "file", "file": given}


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    ("part", "source"),
    [
        (image("data:image/PNG;base64,AA"), {"type": "base64", "media_type": "image/png", "data": "AA"}),
        (image("data:image/jpg;base64,AA"), {"type": "base64", "media_type": "image/jpeg", "data": "AA"}),
        (image("data:image/webp;charset=x;base64,AA"), {"type": "base64", "media_type": "image/webp", "data": "AA"}),
        (image("https://example.com/a.gif"), {"type": "url", "url": "https://example.com/a.gif"}),
        ({"type": "image_url", "image_url": "http://example.com/b"}, {"type": "url", "url": "http://example.com/b"}),
        (
            file(file_data="data:image/gif;base64,AA", filename="a.gif"),
            {"type": "base64", "media_type": "image/gif", "data": "AA"},
        ),
    ],
)
def test_images(part: dict[str, Any], source: dict[str, Any]) -> None:
    assert shown(part) == [{"type": "image", "source": source}]


@pytest.mark.parametrize(
    ("part", "document"),
    [
        (
            file(file_data="data:application/pdf;base64,BB", filename="a.pdf"),
            {"source": {"type": "base64", "media_type": "application/pdf", "data": "BB"}, "title": "a.pdf"},
        ),
        (
            file(file_data="JVBERi0xLjc="),
            {"source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="}},
        ),
        (
            file(file_data=f"data:text/markdown;base64,{TEXT}", filename="a.md"),
            {"source": {"type": "text", "media_type": "text/plain", "data": "año"}, "title": "a.md"},
        ),
        (file(file_url="https://example.com/a.pdf"), {"source": {"type": "url", "url": "https://example.com/a.pdf"}}),
        (file(file_id="https://example.com/a.pdf"), {"source": {"type": "url", "url": "https://example.com/a.pdf"}}),
    ],
)
def test_files(part: dict[str, Any], document: dict[str, Any]) -> None:
    assert shown(part) == [{"type": "document", **document}]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (image("data:image/svg+xml,<svg/>"), "messages[0].content[0].image_url.url"),
        (image(7), "messages[0].content[0].image_url.url"),
        (file(file_id="file-123"), "messages[0].content[0].file"),
        (file(file_data="data:application/zip;base64,AA"), "messages[0].content[0].file"),
        (file(file_data="data:text/plain;base64,???"), "messages[0].content[0].file"),
        (file(file_data="aGFsbG8="), "messages[0].content[0].file"),
        ({"type": "file"}, "messages[0].content[0].file"),
    ],
)
def test_what_cannot_be_shown_is_named(part: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        shown(part)
    assert caught.value.param == param
