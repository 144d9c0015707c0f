"""The classifier's weights on disk: one npz of plain arrays and a JSON provenance, never code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.routing.features import BINS, VOCABULARY_BITS, Floats

FORMAT = 1
IDF_STEP = 24.0
"""Steps of one byte per unit of inverse document frequency, which begins at 1."""
CLIP = np.float32(3.0)
PACKAGED = "data/difficulty.npz"


class ArtefactError(ValueError):
    """The file is not an artefact that this version reads."""


@dataclass(frozen=True, slots=True)
class Support:
    """Where the classifier knows its way, measured on its training prompts."""

    vocabulary: NDArray[np.uint8]
    """2^20 bits: the words that training saw often enough."""
    least_coverage: float
    """Share of a prompt's longer words that must be among them."""
    longest: int
    """Characters."""
    most_strange: float
    """Root mean square of the lexical counts, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Calibration: logistic curves of P(as good as the reference) over the standardised score."""

    coefficients: NDArray[np.float64]
    """A row (intercept, slope) each for a backend far below and one a little below the reference."""
    losses: NDArray[np.float64]
    """Ascending shares of answers that may be worse than the reference's."""
    cutoffs: NDArray[np.float64]
    """A row per curve: the highest standardised score that keeps the expected loss within `losses`."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """Everything that `Grader` and `Adequacy` read."""

    weights: Floats
    idf: Floats
    lexical_mean: Floats
    lexical_deviation: Floats
    lexical_weights: Floats
    """Per standard deviation, which counts up to `CLIP` either way."""
    intercept: float
    centre: float
    spread: float
    support: Support
    curves: Curves
    provenance: Mapping[str, Any]


def save(artefact: Artefact, path: Path) -> None:
    """Weights to one byte each, written whole before it takes the place of an older file."""
    scale = float(np.abs(artefact.weights).max()) / 127 or 1.0
    support, curves = artefact.support, artefact.curves
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        format=np.int64(FORMAT),
        weights=np.round(artefact.weights / scale).astype(np.int8),
        idf=np.clip(np.round((artefact.idf - 1) * IDF_STEP), 0, 255).astype(np.uint8),
        lexical_mean=artefact.lexical_mean,
        lexical_deviation=artefact.lexical_deviation,
        lexical_weights=artefact.lexical_weights,
        scalars=np.array([scale, artefact.intercept, artefact.centre, artefact.spread]),
        vocabulary=support.vocabulary,
        limits=np.array([support.least_coverage, support.longest, support.most_strange]),
        curves=curves.coefficients,
        losses=curves.losses,
        cutoffs=curves.cutoffs,
        provenance=np.frombuffer(orjson.dumps(artefact.provenance), np.uint8),
    )
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(buffer.getvalue())
    fresh.replace(path)


def load(path: Path | None = None) -> Artefact:
    """The packaged artefact, or another. Raises ArtefactError, OSError."""
    data = path.read_bytes() if path else (files("gateway.routing") / PACKAGED).read_bytes()
    name = str(path) if path else PACKAGED
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return _read({key: arrays[key] for key in arrays.files}, name)
    except (ValueError, KeyError, EOFError, OSError, BadZipFile) as error:
        if isinstance(error, ArtefactError):
            raise
        raise ArtefactError(f"{name}: not a router artefact; make one with `thriftgate router fit`") from error


def _read(arrays: Mapping[str, Any], name: str) -> Artefact:
    if int(arrays["format"]) != FORMAT or arrays["weights"].shape != (BINS,):
        raise ArtefactError(f"{name}: made for another version; fit it anew with `thriftgate router fit`")
    if arrays["vocabulary"].shape != ((1 << VOCABULARY_BITS) // 8,):
        raise ArtefactError(f"{name}: its vocabulary has the wrong size; fit it anew with `thriftgate router fit`")
    scale, intercept, centre, spread = (float(value) for value in arrays["scalars"])
    coverage, longest, strangeness = (float(value) for value in arrays["limits"])
    return Artefact(
        weights=arrays["weights"].astype(np.float32) * np.float32(scale),
        idf=(1 + arrays["idf"] / IDF_STEP).astype(np.float32),
        lexical_mean=arrays["lexical_mean"],
        lexical_deviation=arrays["lexical_deviation"],
        lexical_weights=arrays["lexical_weights"],
        intercept=intercept,
        centre=centre,
        spread=spread,
        support=Support(arrays["vocabulary"], coverage, int(longest), strangeness),
        curves=Curves(arrays["curves"], arrays["losses"], arrays["cutoffs"]),
        provenance=orjson.loads(arrays["provenance"].tobytes()),
    )
