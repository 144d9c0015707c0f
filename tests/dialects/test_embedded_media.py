from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.requests.embedded_media import check_embedded
from gateway.errors import BadRequest

PNG = "data:image/png;base64,iVBORw0KGgo="


def messages(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": url}


@pytest.mark.parametrize(
    ("part", "where"),
    [
        (image({"url": "http://127.0.0.1/x"}), "image_url.url"),
        (image("https://10.0.0.1/x"), "image_url"),
        (image({"url": " \thttp://127.0.0.1/x"}), "image_url.url"),
        (image({"url": "HTTP://127.0.0.1/x"}), "image_url.url"),
        (image({"url": "gs://bucket/x"}), "image_url.url"),
        (image({"url": "file:///etc/passwd"}), "image_url.url"),
        (image({"url": "/etc/passwd"}), "image_url.url"),
        (image({"url": "//169.254.169.254/latest"}), "image_url.url"),
        (image({"url": "data:image/png;x=http://127.0.0.1;base64,AA"}), "image_url.url"),
        ({"type": "file", "file": {"file_id": "https://127.0.0.1/x.pdf"}}, "file.file_id"),
        ({"type": "file", "file": {"file_data": "http://127.0.0.1/x.pdf"}}, "file.file_data"),
        ({"type": "video_url", "video_url": {"url": "http://127.0.0.1/v"}}, "video_url.url"),
        ({"type": "document", "source": {"type": "url", "url": "http://127.0.0.1/x"}}, "source.url"),
        ({"type": "brand_new", "deep": [{"thing": "ftp://127.0.0.1/x"}]}, "deep[0].thing"),
    ],
)
def test_addresses_are_refused_by_their_place(part: dict[str, Any], where: str) -> None:
    with pytest.raises(BadRequest, match="data: URL") as caught:
        check_embedded(messages({"type": "text", "text": "look"}, part), "gemini")
    assert caught.value.param == f"messages[0].content[1].{where}"


def test_addresses_beside_the_content_are_refused_too() -> None:
    with pytest.raises(BadRequest):
        check_embedded(
            [{"role": "assistant", "content": "", "images": [image({"url": "http://127.0.0.1/x"})]}], "gemini"
        )


def test_data_and_texts_about_addresses_pass() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"url": "http://a.test"}'}}
    cited = {"type": "url_citation", "url_citation": {"url": "https://a.test"}}
    check_embedded(
        [
            {"role": "system", "content": "https://a.test is ours"},
            *messages(
                {"type": "text", "text": "http://127.0.0.1"}, image({"url": PNG, "detail": "low"}), "http://a.test"
            ),
            *messages(
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a:/b"}}
            ),
            *messages({"type": "input_audio", "input_audio": {"data": "/+MYxAAA", "format": "mp3"}}),
            {"role": "assistant", "content": None, "tool_calls": [call], "annotations": [cited]},
            {"role": "tool", "tool_call_id": "c", "content": "http://a.test"},
        ],
        "gemini",
    )
