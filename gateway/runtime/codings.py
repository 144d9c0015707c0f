"""Encodes and decodes streams in HTTP content codings. The output and the work of decoders are limited.

The libraries for brotli and zstandard are imported when a body in their coding is first seen: most gateways never see
one, and each process would need 1 MiB for them."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from typing import Literal, Protocol

Coding = Literal["zstd", "gzip", "br", "deflate"]

_ALIASES: dict[str, Coding] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate", "br": "br", "zstd": "zstd"}
SLICE_BYTES = 16 * 2**10
"""Maximum input bytes between two checks of the limits. A gzip body may consist of many members. At the end of each
member, zlib copies all input bytes that follow, so smaller inputs cost less."""
PIECE_BYTES = 2**20
"""Maximum output bytes between two checks of the limits."""
CPU_S = 1.0
"""CPU seconds that the decoding of any body may take. More seconds are added for its size."""
_BYTES_A_SECOND = 64 * 2**20
"""For every 64 MiB of output, one CPU second is added to what decoding may take. Each decoder is several times as
fast."""
_FEED_S = 0.0001
"""CPU seconds added each time bytes arrive. Reading the bytes from the network takes about as long."""
_FREE_MEMBERS = 64
_MEMBER_BYTES = 512
"""Minimum average bytes of a member or frame, counting its input and output. The first `_FREE_MEMBERS` are not
counted."""


class UnknownCoding(ValueError):
    """The content coding is not supported."""


class Oversized(ValueError):
    """The decoded output is larger than allowed."""


class TooCostly(ValueError):
    """Decoding needs too much for the body's size: too much CPU time, or too many members or frames."""


class Stopped(Exception):
    """Decoding was stopped, because nobody needs the output any more."""


def parse_coding(header: str) -> Coding | None:
    """The coding that a `content-encoding` header names; None for `identity`. Raises UnknownCoding if the coding is
    unknown, or if there are several."""
    found: Coding | None = None
    for each in header.split(","):
        name = each.strip().lower()
        if name in ("", "identity"):
            continue
        if name not in _ALIASES or found is not None:
            raise UnknownCoding(name)
        found = _ALIASES[name]
    return found


class _Format(Protocol):
    """Decodes one body in one coding, without limits."""

    slice_bytes: int
    members: int
    """Number of members (gzip) or frames (zstd) that were begun so far."""

    @property
    def ended(self) -> bool: ...

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode `data` and yield the output in pieces. Raises ValueError for invalid data."""
        ...


class _Zlib:
    """Decodes gzip (with one or more members), and deflate with or without the zlib header."""

    slice_bytes = SLICE_BYTES

    def __init__(self, coding: Coding) -> None:
        self._gzip = coding == "gzip"
        self._begun = b""
        self._inflate = zlib.decompressobj(31) if self._gzip else None
        self.members = 1

    @property
    def ended(self) -> bool:
        return self._inflate is not None and self._inflate.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflate is None:
                data = self._begun + data
                if len(data) < 2:
                    self._begun = data
                    return
                framed = data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
                self._inflate = zlib.decompressobj(15 if framed else -15)
            elif self._inflate.eof:
                if not self._gzip:
                    raise ValueError("there are more bytes after its end")
                self._inflate = zlib.decompressobj(31)
                self.members += 1
            yield from self._inflated(self._inflate, data)
            data = self._inflate.unused_data

    def _inflated(self, inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
        while True:
            try:
                piece = inflate.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise ValueError(str(error)) from error
            yield piece
            data = inflate.unconsumed_tail
            if inflate.eof or not (data or len(piece) == PIECE_BYTES):  # the piece is full, so zlib may hold more
                return


def _format(coding: Coding) -> _Format:
    match coding:
        case "br":
            from gateway.runtime.brotli_coding import BrotliFormat

            return BrotliFormat()
        case "zstd":
            from gateway.runtime.zstd_coding import ZstdFormat

            return ZstdFormat()
        case _:
            return _Zlib(coding)


class Decoder:
    """Decodes one body. The limits are checked after each slice, so that the time is limited for any input."""

    def __init__(self, coding: Coding, cpu_s: float = CPU_S) -> None:
        """`cpu_s`: the CPU seconds that decoding may take. The size of the decoded output adds further seconds."""
        self._format, self._left_s = _format(coding), cpu_s
        self._bytes = 0
        self.stopped = False
        """Set it to True from any thread to end decoding at the next slice."""

    @property
    def ended(self) -> bool:
        """Return whether the end of the body was decoded."""
        return self._format.ended

    def close(self) -> None:
        """End the body. Raises ValueError if the body is incomplete."""
        if not self.ended:
            raise ValueError("it is incomplete")

    def feed(self, data: bytes, most: int) -> bytes:
        """Decode `data`, the next part of the body. Raises Oversized if the output exceeds `most` bytes; TooCostly;
        Stopped; ValueError for invalid data."""
        return b"".join(self.pieces(data, most))

    def pieces(self, data: bytes, most: int) -> Iterator[bytes]:
        """Decode `data`, the next part of the body, and yield the output in pieces; some pieces are empty. The CPU
        time that the caller needs between pieces does not count. Raises Oversized if the output exceeds `most`
        bytes; TooCostly; Stopped; ValueError for invalid data.
        """
        step, left = self._format.slice_bytes, most
        self._left_s += _FEED_S
        for start in range(0, len(data), step):
            taken = data[start : start + step]
            self._bytes += len(taken)
            since = time.thread_time()
            for piece in self._format.feed(taken):
                left -= len(piece)
                if left < 0:
                    raise Oversized
                self._bytes += len(piece)
                self._left_s += len(piece) / _BYTES_A_SECOND
                since = self._look(since)
                yield piece
            self._look(since)

    def _look(self, since: float) -> float:
        """Check the limits. `since`: the thread's CPU time at the last check. Returns the thread's present CPU time.
        Raises TooCostly, Stopped."""
        if self.stopped:
            raise Stopped
        now = time.thread_time()
        self._left_s -= now - since
        if self._left_s < 0:
            raise TooCostly("it takes more time to decode than its size allows")
        if self._format.members > _FREE_MEMBERS + self._bytes // _MEMBER_BYTES:
            raise TooCostly(f"its members or frames have fewer than {_MEMBER_BYTES} bytes each")
        return now


class Decoding:
    """Decodes a whole body. `begin` and `finish` may be called in different threads."""

    def __init__(self, body: bytes, coding: Coding, most: int, cpu_s: float = CPU_S) -> None:
        self._decoder = Decoder(coding, cpu_s)
        self._pieces = self._decoder.pieces(body, most)
        self._out: list[bytes] = []

    def stop(self) -> None:
        """Make decoding end soon with the error Stopped. May be called from any thread."""
        self._decoder.stopped = True

    def begin(self, pause_s: float) -> bytes | None:
        """Decode for about `pause_s` CPU seconds. Returns the decoded body, or None if `finish` must decode the rest.
        Raises Oversized, TooCostly, Stopped; ValueError for invalid or incomplete data.
        """
        until = time.thread_time() + pause_s
        for piece in self._pieces:
            self._out.append(piece)
            if time.thread_time() > until:
                return None
        return self.finish()

    def finish(self) -> bytes:
        """Decode the rest and return the whole decoded body. Raises Oversized, TooCostly, Stopped; ValueError for
        invalid or incomplete data."""
        self._out.extend(self._pieces)
        self._decoder.close()
        return b"".join(self._out)


def decode(body: bytes, coding: Coding, most: int, cpu_s: float = CPU_S) -> bytes:
    """Decode a whole body. `most`: maximum size of the output in bytes. Raises Oversized, TooCostly; ValueError for
    invalid or incomplete data.
    """
    return Decoding(body, coding, most, cpu_s).finish()


# -- encoding ------------------------------------------------------------------------------------------------------


class Encoder(Protocol):
    """Encodes one body in pieces. The receiver can decode each returned piece before the next one arrives."""

    def piece(self, data: bytes) -> bytes: ...

    def last(self, data: bytes) -> bytes: ...


class _Deflating:
    """Encodes gzip or deflate. Its windows are small, because there may be thousands of streams."""

    def __init__(self, coding: Coding) -> None:
        self._deflate = zlib.compressobj(1, zlib.DEFLATED, 28 if coding == "gzip" else 12, 5)

    def piece(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def last(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush()


def encoder(coding: Coding) -> Encoder:
    """Make an encoder for a stream. The encoder flushes after each piece, so that the piece can be sent at once."""
    match coding:
        case "br":
            from gateway.runtime.brotli_coding import BrotliEncoder

            return BrotliEncoder()
        case "zstd":
            from gateway.runtime.zstd_coding import ZstdEncoder

            return ZstdEncoder()
        case _:
            return _Deflating(coding)


def encode(body: bytes, coding: Coding) -> bytes:
    """Encode a whole body at the fastest setting, because the receiver may be in the local network."""
    match coding:
        case "br":
            from gateway.runtime import brotli_coding

            return brotli_coding.encode(body)
        case "zstd":
            from gateway.runtime import zstd_coding

            return zstd_coding.encode(body)
        case "gzip":
            return zlib.compress(body, 1, 31)
        case _:
            return zlib.compress(body, 1, 15)
