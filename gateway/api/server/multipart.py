"""Streams the file of a multipart form to its destination while it arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from gateway.api.server.upload import Uploads
from gateway.errors import BadRequest, UnsupportedMediaType

FIELD = 1000
"""Maximum bytes of a field that is not a file."""
FRAME = 64 * 2**10
"""Maximum bytes of boundaries, headers and fields in addition to the file."""


class Form:
    """A push parser for one multipart form. It keeps the fields, and passes the bytes of part `file` to `sink`. Use it
    off the event loop only."""

    def __init__(self, content_type: bytes, sink: Callable[[bytes], object]) -> None:
        """Start parsing. Raises UnsupportedMediaType if `content_type` is not that of a form."""
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise UnsupportedMediaType("Content-Type must be multipart/form-data with a boundary.")
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.whole = False
        self._sink = sink
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._part, self._value = "", bytearray()
        try:
            self._parser = MultipartParser(options[b"boundary"], self._callbacks())
        except FormParserError as error:
            raise BadRequest(f"The form cannot be read: {error}.") from error

    def feed(self, data: bytes) -> None:
        """Parse `data`. Raises BadRequest, and the errors of `sink`."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise BadRequest(f"The form cannot be read: {error}.") from error

    def _callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._part, self._value = "", bytearray()

    def _end_header(self) -> None:
        name, value = map(bytes, self._header)
        self._header = (bytearray(), bytearray())
        if name.lower() != b"content-disposition":
            return
        _, options = parse_options_header(value)
        self._part = options.get(b"name", b"").decode("utf-8", "replace")
        if self._part in self.fields or (self._part == "file" and self.filename is not None):
            raise BadRequest(f"The form has two parts called {self._part!r}.", param=self._part)
        if self._part == "file":
            self.filename = options.get(b"filename", b"").decode("utf-8", "replace")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part == "file":
            self._sink(data[start:end])
        elif len(self._value) + end - start > FIELD:
            raise BadRequest(f"The field {self._part!r} is longer than {FIELD} bytes.", param=self._part)
        else:
            self._value += data[start:end]

    def _end(self) -> None:
        if self._part != "file":
            self.fields[self._part] = self._value.decode("utf-8", "replace")

    def _finish(self) -> None:
        self.whole = True


async def receive_form(request: Request, sink: Callable[[bytes], object], limit: int, uploads: Uploads) -> Form:
    """Receive a form with a file of at most `limit` bytes. Raises BadRequest, also if the form arrives too slowly or
    ends early."""
    form = Form(request.headers.get("content-type", "").encode("latin-1"), sink)
    await uploads.receive(request, form.feed, limit, FRAME)
    if not form.whole:
        raise BadRequest("The form ends before its last boundary.")
    return form
