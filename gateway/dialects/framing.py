"""Interface for client dialects that are another dialect in a different wire form. The gateway serves them in the other
dialect, and converts only the form of requests and answers."""

from __future__ import annotations

from typing import ClassVar, Protocol

from gateway.dialects.path_endpoint import PathEndpoint


class Framing(Protocol):
    """Converts one answer from the dialect of the parsed request to the form of the client."""

    content_type: bytes
    """The content type of a stream."""

    def plain(self, body: bytes) -> bytes:
        """Convert a plain body."""
        ...

    def stream(self, piece: bytes) -> bytes:
        """Convert a piece of a stream. Returns the part that is complete so far, which may be empty."""
        ...


class FramedEndpoint(PathEndpoint):
    """A path whose parser returns a request in another dialect. The gateway serves the request in that dialect, and
    `framing` converts the answer.
    """

    may_lack_content_type: ClassVar[bool] = False
    """Whether clients of this API may leave out the header `content-type`."""

    def framing(self) -> Framing:
        """The converter for one answer."""
        raise NotImplementedError
