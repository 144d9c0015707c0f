"""Brotli, as a format that `codings.py` decodes and encodes."""

from __future__ import annotations

from collections.abc import Iterator

import brotli

from gateway.runtime.codings import PIECE_BYTES, SLICE_BYTES


class BrotliFormat:
    slice_bytes = SLICE_BYTES
    members = 1

    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    @property
    def ended(self) -> bool:
        finished: bool = self._decompressor.is_finished()
        return finished

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            yield self._decompressor.process(data, output_buffer_limit=PIECE_BYTES)
            while not (self.ended or self._decompressor.can_accept_more_data()):
                yield self._decompressor.process(b"", output_buffer_limit=PIECE_BYTES)
        except brotli.error as error:
            raise ValueError(str(error)) from error


class BrotliEncoder:
    """Encodes brotli with quality 4. A lower quality forgets all earlier data at each flush, and so hardly compresses a
    stream."""

    def __init__(self) -> None:
        self._compressor = brotli.Compressor(quality=4, lgwin=16)

    def piece(self, data: bytes) -> bytes:
        out: bytes = self._compressor.process(data) + self._compressor.flush()
        return out

    def last(self, data: bytes) -> bytes:
        out: bytes = self._compressor.process(data) + self._compressor.finish()
        return out


def encode(body: bytes) -> bytes:
    out: bytes = brotli.compress(body, quality=1, lgwin=18)
    return out
