"""Decodes the body of a response. Needed for backends that encode bodies although the request allows only the coding
`identity`."""

from __future__ import annotations

from gateway.errors import BackendGarbage, StreamBroken
from gateway.runtime.codings import Decoder, Oversized, TooCostly, UnknownCoding, parse_coding

_MOST_BYTES = 16 * 2**20
"""Maximum bytes of the decoded data of one read."""
_CPU_S = 0.25
"""Maximum CPU seconds for decoding one response body. The limit for request bodies is higher, because response bodies
are decoded on the event loop."""
_OF_THE_CODED = (b"content-encoding", b"content-length")


class DecodedBody:
    """Decodes one body. The constructor removes from the headers those fields that describe the encoded bytes."""

    def __init__(self, headers: list[tuple[bytes, bytes]], name: str) -> None:
        """`name`: the backend's name in errors. Raises BackendGarbage for an unknown coding, or for more than one
        coding."""
        self._name = name
        value = b", ".join(value for key, value in headers if key == b"content-encoding").decode("latin-1")
        try:
            coding = parse_coding(value)
        except UnknownCoding:
            raise BackendGarbage(f"{name} sent a body in a coding that was not requested", backend=name) from None
        self._decoder = None if coding is None else Decoder(coding, _CPU_S)
        headers[:] = [pair for pair in headers if pair[0] not in _OF_THE_CODED]
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        """Decode a piece of the body. Raises BackendGarbage."""
        if self._decoder is None:
            return data
        self._begun = True
        try:
            return self._decoder.feed(data, _MOST_BYTES)
        except Oversized:
            raise BackendGarbage(f"{self._name} sent a body that grows beyond all bounds", backend=self._name) from None
        except TooCostly as error:
            message = f"{self._name} sent an encoded body that was given up: {error}"
            raise BackendGarbage(message, backend=self._name) from None
        except ValueError as error:
            message = f"{self._name} sent a body that is not what its content-encoding says"
            raise BackendGarbage(message, backend=self._name) from error

    def end(self) -> None:
        """Check that the body was complete. An empty body is also accepted. Raises StreamBroken if the body is
        incomplete."""
        if self._begun and self._decoder is not None and not self._decoder.ended:
            raise StreamBroken(f"{self._name} broke off in the middle of its answer", backend=self._name)
