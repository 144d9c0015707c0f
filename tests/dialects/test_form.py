"""Forms that are passed on."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.passthrough import form
from gateway.errors import BadRequest, UnsupportedMediaType
from tests.dialects.samples import steady

TYPE = b'multipart/form-data; boundary="b-1"'


def made(*parts: tuple[str, bytes]) -> bytes:
    head = b"--b-1\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n"
    return b"".join(head % (name.encode(), content) for name, content in parts) + b"--b-1--\r\n"


def test_parts_lie_where_they_are_said_to_lie() -> None:
    body = made(('name="model"', b"m"), ('name="file"; filename="a.mp3"', b"\x00--b-\r\n1\r\n"), ('name="empty"', b""))
    found = form.parts(b"preamble\r\n" + body, TYPE)
    assert [(part.name, part.file) for part in found] == [("model", False), ("file", True), ("empty", False)]
    shifted = b"preamble\r\n" + body
    assert [shifted[part.start : part.end] for part in found] == [b"m", b"\x00--b-\r\n1\r\n", b""]


@steady
@given(st.binary(max_size=300), st.text(max_size=20))
def test_what_httpx_writes_is_read(content: bytes, value: str) -> None:
    request = httpx.Request(
        "POST", "http://x", data={"model": "m", "prompt": value}, files={"image[]": ("ñ.png", content, "image/png")}
    )
    body = request.read()
    found = form.parts(body, request.headers["content-type"].encode())
    assert {part.name: body[part.start : part.end] for part in found} == {
        "model": b"m",
        "prompt": value.encode(),
        "image[]": content,
    }
    assert [part.name for part in found if part.file] == ["image[]"]


@pytest.mark.parametrize("body", [b"", b"--b-1", b"--b-1\r\n\r\nx", made(("x", b"y"))[:-6], b"no form at all"])
def test_a_form_that_is_not_whole_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        form.parts(body, TYPE)


def test_a_form_without_a_boundary_is_refused() -> None:
    with pytest.raises(UnsupportedMediaType):
        form.parts(made(), b"multipart/form-data")


def test_a_part_without_a_name_is_somebodys_part_all_the_same() -> None:
    found = form.parts(b"--b-1\r\nX-Other: 1\r\n\r\nv\r\n--b-1--", TYPE)
    assert found == [form.Part("", False, 21, 22)]
