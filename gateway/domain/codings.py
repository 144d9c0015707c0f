"""HTTP content codings as values: bytes in, bytes out, piece by piece, and never more than was allowed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal, Protocol

import brotli
import zstandard

Coding = Literal["zstd", "gzip", "br", "deflate"]

_ALIASES: dict[str, Coding] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate", "br": "br", "zstd": "zstd"}
_ZSTD_WINDOW_BYTES = 8 * 2**20
"""What RFC 9659 lets a sender ask of a receiver."""
_ZSTD_SLICE_BYTES = 1024
"""zstandard cannot be told how much may come out; of so much in it is at most 32 MiB."""
_MOST_CODINGS = 4
"""Applied one over the other."""


class UnknownCoding(ValueError):
    """Nothing here reads it."""


class Oversized(ValueError):
    """More came out than was allowed."""


def parse_codings(header: str) -> list[Coding]:
    """`content-encoding` as the list of codings in the order in which they were applied, `identity` left out.

    Raises UnknownCoding.
    """
    names = [name.strip().lower() for name in header.split(",")]
    found: list[Coding] = []
    for name in names:
        if name in ("", "identity"):
            continue
        if name not in _ALIASES or len(found) == _MOST_CODINGS:
            raise UnknownCoding(name)
        found.append(_ALIASES[name])
    return found


class Decoder(Protocol):
    """One body under way."""

    def feed(self, data: bytes, most: int) -> bytes:
        """What `data` adds. Raises Oversized when that is more than `most` bytes, ValueError for garbage."""
        ...

    @property
    def ended(self) -> bool:
        """Is the body whole?"""
        ...


class _Zlib:
    """gzip (of several members, too) and deflate, with zlib's frame or, as some send it, without."""

    def __init__(self, coding: Coding) -> None:
        self._gzip = coding == "gzip"
        self._begun = b""
        self._inflate = zlib.decompressobj(31) if self._gzip else None

    @property
    def ended(self) -> bool:
        return self._inflate is not None and self._inflate.eof

    def feed(self, data: bytes, most: int) -> bytes:
        out = b""
        while data:
            if self._inflate is None:
                data = self._begun + data
                if len(data) < 2:
                    self._begun = data
                    break
                framed = data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
                self._inflate = zlib.decompressobj(15 if framed else -15)
            elif self._inflate.eof:
                if not self._gzip:
                    raise ValueError("more follows the end")
                self._inflate = zlib.decompressobj(31)
            try:
                out += self._inflate.decompress(data, most - len(out) + 1)
            except zlib.error as error:
                raise ValueError(str(error)) from error
            if len(out) > most:
                raise Oversized
            data = self._inflate.unused_data
        return out


class _Brotli:
    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    @property
    def ended(self) -> bool:
        finished: bool = self._decompressor.is_finished()
        return finished

    def feed(self, data: bytes, most: int) -> bytes:
        try:
            out: bytes = self._decompressor.process(data, output_buffer_limit=most + 1)
        except brotli.error as error:
            raise ValueError(str(error)) from error
        if len(out) > most or not (self._decompressor.can_accept_more_data() or self.ended):
            raise Oversized
        return out


class _Zstd:
    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._frame = self._decompressor.decompressobj()

    @property
    def ended(self) -> bool:
        return self._frame.eof

    def feed(self, data: bytes, most: int) -> bytes:
        pieces, size = [], 0
        for start in range(0, len(data), _ZSTD_SLICE_BYTES):
            rest = data[start : start + _ZSTD_SLICE_BYTES]
            while rest:
                if self._frame.eof:
                    self._frame = self._decompressor.decompressobj()
                try:
                    piece = self._frame.decompress(rest)
                except zstandard.ZstdError as error:
                    raise ValueError(str(error)) from error
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise Oversized
                rest = self._frame.unused_data if self._frame.eof else b""
        return b"".join(pieces)


class _Layers:
    """Several codings, the last applied taken off first."""

    def __init__(self, codings: Sequence[Coding]) -> None:
        self._decoders = [_one(coding) for coding in reversed(codings)]

    @property
    def ended(self) -> bool:
        return all(decoder.ended for decoder in self._decoders)

    def feed(self, data: bytes, most: int) -> bytes:
        for decoder in self._decoders:
            data = decoder.feed(data, most)
        return data


def _one(coding: Coding) -> Decoder:
    match coding:
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstd()
        case _:
            return _Zlib(coding)


def decoder(codings: Sequence[Coding]) -> Decoder:
    """Takes off what `parse_codings` found."""
    return _one(codings[0]) if len(codings) == 1 else _Layers(codings)


def decode(body: bytes, codings: Sequence[Coding], most: int) -> bytes:
    """A whole body. Raises Oversized when it is above `most` bytes (between two codings, too), ValueError for garbage
    and for what breaks off."""
    reading = decoder(codings)
    out = reading.feed(body, most)
    if not reading.ended:
        raise ValueError("it breaks off")
    return out


# -- the other direction ---------------------------------------------------------------------------------------------


class Encoder(Protocol):
    """One body under way; what it returns can be read without what follows."""

    def piece(self, data: bytes) -> bytes: ...

    def last(self, data: bytes) -> bytes: ...


class _Deflating:
    """Small windows: events resemble the one before, and there may be thousands of streams."""

    def __init__(self, coding: Coding) -> None:
        self._deflate = zlib.compressobj(1, zlib.DEFLATED, 28 if coding == "gzip" else 12, 5)

    def piece(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def last(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush()


class _Brotling:
    """Below quality 4 brotli forgets what came before a flush, and compresses nothing of a stream."""

    def __init__(self) -> None:
        self._compressor = brotli.Compressor(quality=4, lgwin=16)

    def piece(self, data: bytes) -> bytes:
        out: bytes = self._compressor.process(data) + self._compressor.flush()
        return out

    def last(self, data: bytes) -> bytes:
        out: bytes = self._compressor.process(data) + self._compressor.finish()
        return out


class _Zstding:
    def __init__(self) -> None:
        self._frame = zstandard.ZstdCompressor(compression_params=_ZSTD_STREAM).compressobj()

    def piece(self, data: bytes) -> bytes:
        return self._frame.compress(data) + self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def last(self, data: bytes) -> bytes:
        return self._frame.compress(data) + self._frame.flush()


_ZSTD_STREAM = zstandard.ZstdCompressionParameters.from_level(1, window_log=15)


def encoder(coding: Coding) -> Encoder:
    """For a stream: every piece goes out at once."""
    match coding:
        case "br":
            return _Brotling()
        case "zstd":
            return _Zstding()
        case _:
            return _Deflating(coding)


def encode(body: bytes, coding: Coding) -> bytes:
    """A whole body, as fast as it goes: the next hop is as likely a cable as a line abroad."""
    match coding:
        case "br":
            out: bytes = brotli.compress(body, quality=1, lgwin=18)
            return out
        case "zstd":
            return zstandard.ZstdCompressor(level=1).compress(body)
        case "gzip":
            return zlib.compress(body, 1, 31)
        case _:
            return zlib.compress(body, 1, 15)
