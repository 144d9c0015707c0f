"""Signs service account tokens with RSA and SHA-256 (RS256). Pure Python is fast enough, because one signature per hour
is needed."""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field

_SHA256 = bytes.fromhex("3031300d060960864801650304020105000420")
"""The DigestInfo of SHA-256 (RFC 8017, 9.2) without the digest."""
_INTEGER, _OCTETS, _SEQUENCE = 0x02, 0x04, 0x30


@dataclass(frozen=True, slots=True)
class PrivateKey:
    modulus: int
    public: int
    private: int = field(repr=False)

    @classmethod
    def of_pem(cls, text: str) -> PrivateKey:
        """Parse a key in PKCS #8 or PKCS #1. Raises ValueError; the text of the error contains no part of the key."""
        lines = [line.strip() for line in text.strip().splitlines()]
        if len(lines) < 3 or not lines[0].startswith("-----BEGIN") or "PRIVATE KEY" not in lines[0]:
            raise ValueError("the private key is not in PEM format")
        try:
            fields = list(_fields(b64decode("".join(lines[1:-1]), validate=True)))
            if fields[1][0] == _SEQUENCE:  # PKCS #8: version, algorithm, and the PKCS #1 key as an octet string
                fields = list(_fields(fields[2][1]))
            numbers = [int.from_bytes(value, "big") for kind, value in fields if kind == _INTEGER]
            _, modulus, public, private = numbers[:4]
        except (binascii.Error, IndexError, ValueError):
            raise ValueError("the private key cannot be read as an RSA key") from None
        return cls(modulus, public, private)

    def sign(self, data: bytes) -> bytes:
        """The signature by RSASSA-PKCS1-v1_5."""
        size = (self.modulus.bit_length() + 7) // 8
        digest = _SHA256 + hashlib.sha256(data).digest()
        padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
        return pow(int.from_bytes(padded, "big"), self.private, self.modulus).to_bytes(size, "big")


def _fields(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and contents of each element of the sequence `der`. Raises IndexError, ValueError."""
    tag, inside, _ = _element(der, 0)
    if tag != _SEQUENCE:
        raise ValueError(tag)
    at = 0
    while at < len(inside):
        tag, value, at = _element(inside, at)
        yield tag, value


def _element(der: bytes, at: int) -> tuple[int, bytes, int]:
    tag, size, at = der[at], der[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(der[at : at + count], "big"), at + count
    if at + size > len(der):
        raise IndexError(at)
    return tag, der[at : at + size], at + size
