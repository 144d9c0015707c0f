"""Zstandard, as a format that `codings.py` decodes and encodes."""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

_WINDOW_BYTES = 8 * 2**20
"""Maximum size in bytes of zstandard's window. RFC 9659 allows senders to require up to this size."""
_SLICE_BYTES = 512
"""Maximum bytes passed to zstandard in one call. zstandard cannot limit its output, and 512 bytes decode to at most 16
MiB."""
_STREAM = zstandard.ZstdCompressionParameters.from_level(1, window_log=15)


class ZstdFormat:
    slice_bytes = _SLICE_BYTES

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        self._frame = self._decompressor.decompressobj()
        self.members = 1

    @property
    def ended(self) -> bool:
        return self._frame.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
                self.members += 1
            try:
                yield self._frame.decompress(data)
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from error
            data = self._frame.unused_data if self._frame.eof else b""


class ZstdEncoder:
    def __init__(self) -> None:
        self._frame = zstandard.ZstdCompressor(compression_params=_STREAM).compressobj()

    def piece(self, data: bytes) -> bytes:
        return self._frame.compress(data) + self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def last(self, data: bytes) -> bytes:
        return self._frame.compress(data) + self._frame.flush()


def encode(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(body)
