"""Finds the parts of a multipart form, so that a single part can be replaced. The other parts stay unchanged."""

from __future__ import annotations

from typing import NamedTuple

from python_multipart.multipart import parse_options_header

from gateway.errors import BadRequest, UnsupportedMediaType

MAX_PARTS = 1000
_LINE = b"\r\n"


class Part(NamedTuple):
    """One part of a form."""

    name: str
    file: bool
    start: int
    end: int
    """`start` and `end` are the positions in the body at which the content of the part begins and ends."""


def is_form(content_type: bytes) -> bool:
    """Whether `content_type` is the content type of a multipart form."""
    return content_type.lower().startswith(b"multipart/form-data")


def parts(body: bytes, content_type: bytes) -> list[Part]:
    """The parts of a form, in order. Raises UnsupportedMediaType if the content type has no boundary, and BadRequest if
    the form is incomplete."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise UnsupportedMediaType("Content-Type must be multipart/form-data with a boundary.")
    try:
        return _parts(body, b"--" + boundary)
    except ValueError:
        raise BadRequest("The form cannot be read: it does not end with its boundary.") from None


def _parts(body: bytes, mark: bytes) -> list[Part]:
    found: list[Part] = []
    at = 0 if body.startswith(mark) else body.index(_LINE + mark) + len(_LINE)
    while not body.startswith(b"--", at := at + len(mark)):
        head = body.index(_LINE, at)
        start = body.index(_LINE * 2, head) + 2 * len(_LINE)
        end = body.index(_LINE + mark, start - len(_LINE))
        found.append(_part(body[head:start], start, max(start, end)))
        if len(found) > MAX_PARTS:
            raise BadRequest(f"The form has more than {MAX_PARTS} parts.")
        at = end + len(_LINE)
    return found


def _part(head: bytes, start: int, end: int) -> Part:
    for line in head.split(_LINE):
        field, _, value = line.partition(b":")
        if field.strip().lower() == b"content-disposition":
            _, options = parse_options_header(value)
            name = options.get(b"name", b"").decode("utf-8", "replace")
            return Part(name, b"filename" in options, start, end)
    return Part("", False, start, end)
