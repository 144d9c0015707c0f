"""Client dialects that differ from another dialect only in the form of requests and answers on the wire."""

from __future__ import annotations

from typing import ClassVar, Protocol

from gateway.dialects.path_endpoint import PathEndpoint


class Framing(Protocol):
    """Converts the answer to one request from the dialect in which it is served."""

    content_type: bytes
    """The content type of a stream."""

    def plain(self, body: bytes) -> bytes:
        """Convert a plain body."""
        ...

    def stream(self, piece: bytes) -> bytes:
        """Convert a piece of a stream. Returns what is complete so far, which may be nothing."""
        ...


class FramedEndpoint(PathEndpoint):
    """A path whose parser returns a request in another dialect. Everything behind the parser serves that dialect, and
    `framing` converts the answer."""

    may_lack_content_type: ClassVar[bool] = False
    """Whether clients of this API may leave out the header `content-type`."""

    def framing(self) -> Framing:
        """The converter for one answer."""
        raise NotImplementedError
