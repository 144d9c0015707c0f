"""Reads and writes the classifier's weights. The file is an npz file with plain arrays and their provenance as JSON,
and contains no code."""

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

from gateway.routing.difficulty.features import BINS, VOCABULARY_BITS
from gateway.routing.difficulty.scorer import Scorer

FORMAT = 2
IDF_STEP = 24.0
"""Number of steps per unit in which an inverse document frequency is stored. The frequency is at least 1 and is stored
in one byte."""
LEVELS = 31
"""Number of positive levels of a stored weight. Compared with 127 levels, the file is half as large, and grades differ
by hundredths of their standard deviation."""
PACKAGED = "data/difficulty.npz"
TRAIN = "python -m gateway.routing.fit.difficulty"


class ArtefactError(ValueError):
    """This version cannot read the file as an artefact (weights of a classifier, or a plan)."""


@dataclass(frozen=True, slots=True)
class Support:
    """Describes the training prompts, so that the classifier can abstain from prompts that differ too much from
    them."""

    vocabulary: NDArray[np.uint8]
    """A bit set (2^20 bits) of the hashes of words that were frequent enough in training."""
    least_coverage: float
    """Minimum share of a prompt's longer words that must be in the vocabulary."""
    longest: int
    """Maximum characters of a prompt."""
    most_strange: float
    """Maximum root mean square of the lexical counts, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Curves:
    """The calibration: logistic curves that convert a standardised score to the probability that a weaker backend's
    answer is as good as the reference's."""

    coefficients: NDArray[np.float64]
    """Two rows of (intercept, slope). The first is for backends that are much weaker than the reference, the second for
    slightly weaker backends."""
    losses: NDArray[np.float64]
    """Shares of answers that may be worse than the reference's, ascending."""
    cutoffs: NDArray[np.float64]
    """One row per curve. For each of `losses`, the highest standardised score up to which the expected loss is at most
    that value."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """All data that `Grader` and `Adequacy` need, as the weights file contains them."""

    scorer: Scorer
    centre: float
    spread: float
    support: Support
    curves: Curves
    provenance: Mapping[str, Any]


def save(artefact: Artefact, path: Path) -> None:
    """Write the file, with weights rounded to one byte. An older file is replaced atomically. Raises OSError."""
    scorer = artefact.scorer
    weights = scorer.weights * scorer.unit
    steps = np.maximum(np.abs(weights).max(0), 1e-12) / LEVELS
    support, curves = artefact.support, artefact.curves
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        format=np.int64(FORMAT),
        weights=np.round(weights / steps).astype(np.int8).T,
        steps=steps.astype(np.float32),
        idf=np.clip(np.round((scorer.idf - 1) * IDF_STEP), 0, 255).astype(np.uint8),
        lexical_mean=scorer.lexical_mean,
        lexical_deviation=scorer.lexical_deviation,
        lexical_weights=scorer.lexical_weights,
        intercepts=scorer.intercepts,
        gates=scorer.gates,
        gate_intercepts=scorer.gate_intercepts,
        scale=np.array([artefact.centre, artefact.spread]),
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
    """Read an artefact; by default the packaged one. Raises ArtefactError, OSError."""
    data = path.read_bytes() if path else (files("gateway.routing") / PACKAGED).read_bytes()
    name = str(path) if path else PACKAGED
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return _read({key: arrays[key] for key in arrays.files}, name)
    except (ValueError, KeyError, EOFError, OSError, BadZipFile) as error:
        if isinstance(error, ArtefactError):
            raise
        raise ArtefactError(f"{name}: not a router artefact; make one with `{TRAIN}`") from error


def _read(arrays: Mapping[str, Any], name: str) -> Artefact:
    if int(arrays["format"]) != FORMAT or arrays["weights"].shape[1:] != (BINS,):
        raise ArtefactError(f"{name}: made for another version; fit it anew with `{TRAIN}`")
    if arrays["vocabulary"].shape != ((1 << VOCABULARY_BITS) // 8,):
        raise ArtefactError(f"{name}: its vocabulary has the wrong size; fit it anew with `{TRAIN}`")
    if len(arrays["weights"]) != len(arrays["gates"]) + 1:
        raise ArtefactError(f"{name}: its experts and gates differ in number; fit it anew with `{TRAIN}`")
    centre, spread = (float(value) for value in arrays["scale"])
    coverage, longest, strangeness = (float(value) for value in arrays["limits"])
    scorer = Scorer(
        weights=np.ascontiguousarray(arrays["weights"].T),
        unit=arrays["steps"],
        idf=(1 + arrays["idf"] / IDF_STEP).astype(np.float32),
        lexical_mean=arrays["lexical_mean"],
        lexical_deviation=arrays["lexical_deviation"],
        lexical_weights=arrays["lexical_weights"],
        intercepts=arrays["intercepts"],
        gates=arrays["gates"],
        gate_intercepts=arrays["gate_intercepts"],
    )
    return Artefact(
        scorer=scorer,
        centre=centre,
        spread=spread,
        support=Support(arrays["vocabulary"], coverage, int(longest), strangeness),
        curves=Curves(arrays["curves"], arrays["losses"], arrays["cutoffs"]),
        provenance=orjson.loads(arrays["provenance"].tobytes()),
    )
