"""Encodes unit vectors as half-precision numbers. This changes cosines by about 0.0003."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # a worker whose teams do not use the semantic cache never loads NumPy
    import numpy as np
    from numpy.typing import NDArray

Vector: TypeAlias = "NDArray[np.float32]"

BYTES_PER_DIMENSION = 2


def pack(vector: Vector) -> bytes:
    packed: bytes = vector.astype("float16").tobytes()
    return packed


def unpack(packed: bytes, dimensions: int) -> Vector:
    """The vectors in `packed`, as an array of shape (n, `dimensions`)."""
    import numpy as np

    rows: Vector = np.frombuffer(packed, dtype=np.float16).astype(np.float32).reshape(-1, dimensions)
    return rows
