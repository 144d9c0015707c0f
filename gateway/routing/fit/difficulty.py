"""Trains the difficulty classifier: `python -m gateway.routing.fit.difficulty --data FILE… --out FILE`."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gateway.routing.difficulty.ridge import Array
from gateway.routing.difficulty.weights_file import FORMAT, Artefact, ArtefactError, Curves, Support, load, save
from gateway.routing.fit.calibration import calibration_error, curves
from gateway.routing.fit.corpus import Corpus, Progress, coverage, folds, known_words, read_corpus, strangeness, without
from gateway.routing.fit.evaluation import DataError, apgr, apgr_interval
from gateway.routing.fit.mixture import (
    BALANCE,
    EXPERT_PENALTY,
    EXPERT_SCALE,
    GATE_PENALTY,
    LEVEL,
    LEXICAL_SCALE,
    PENALTY,
    Mask,
    Model,
    fit_model,
    refine,
)

FOLDS = 5
LEAST = 200
"""Minimum number of prompts for training."""
LEAST_MORE = 50
"""Minimum number of prompts for refining an earlier classifier."""
ABSTAIN = 0.01
"""Share of the prompts of a set without training prompts that may be outside each limit of the classifier's domain. The
classifier abstains from these prompts."""
REACH = 1.5
"""Maximum length of a prompt in the domain, as a multiple of the length of the longest training prompt."""


def fit(paths: Sequence[Path], progress: Progress, *, seed: int = 0, prior: Artefact | None = None) -> Artefact:
    """Train a classifier on the prompts in the files `paths`, after cross-validation by sets. `prior`: an earlier
    classifier, which is refined with these prompts. Raises DataError, OSError."""
    corpus = read_corpus(paths, progress)
    least = LEAST if prior is None else LEAST_MORE
    if len(corpus) < least:
        raise DataError(f"{len(corpus)} prompts are too few to train on; collect at least {least}")

    def train(chosen: Mask) -> Model:
        return fit_model(corpus, chosen) if prior is None else refine(prior.scorer, corpus, chosen)

    seen = _cross_validated(corpus, train, progress)
    unseen, limits = _held_out(corpus, progress) if prior is None else _known_before(corpus, prior)
    centre, spread = float(seen.mean()), float(seen.std()) or 1.0
    standard = (seen - centre) / spread
    fitted = curves(corpus, standard)
    progress("training on everything")
    support = _support(corpus, limits, prior)
    provenance = {
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "format": FORMAT,
        "seed": seed,
        "method": "ridge regressions of the gain (strong − weak) on hashed n-grams and lexical counts: one for all "
        "prompts, one for each larger set, mixed by linear gates",
        "settings": {
            "penalty": PENALTY,
            "lexical_scale": LEXICAL_SCALE,
            "expert_penalty": EXPERT_PENALTY,
            "expert_scale": EXPERT_SCALE,
            "gate_penalty": GATE_PENALTY,
            "balance": BALANCE,
            "level": LEVEL,
            "folds": FOLDS,
        },
        "selection": "constants, chosen on the packaged artefact's data; see docs/research/routing-figures.md",
        "data": [source(path) for path in paths],
        "prior": None if prior is None else prior.provenance["data"],
        "prompts": len(corpus),
        "sets": _metrics(corpus, seen, unseen, seed),
        "calibration": _calibration(corpus, standard, unseen, fitted),
        "support": {"least_coverage": limits[0], "most_strange": limits[1], "longest": support.longest},
    }
    scorer = train(np.ones(len(corpus), dtype=bool)).scorer
    return Artefact(scorer, centre, spread, support, fitted, provenance)


def _cross_validated(corpus: Corpus, train: Callable[[Mask], Model], progress: Progress) -> Array:
    """The score of each prompt, from a classifier that was trained without this prompt and its variants."""
    scores = np.zeros(len(corpus))
    for number, test in enumerate(folds(corpus, FOLDS), 1):
        scores[test] = train(~test).scores[test]
        progress(f"cross-validation: fold {number} of {FOLDS}")
    return scores


def _known_before(corpus: Corpus, prior: Artefact) -> tuple[Array, tuple[float, float]]:
    """The scores that the earlier classifier `prior` gives to the prompts, and the limits of that classifier's
    domain."""
    scores = np.array([prior.scorer.score(each) for each in corpus.features])
    return scores, (prior.support.least_coverage, prior.support.most_strange)


def _held_out(corpus: Corpus, progress: Progress) -> tuple[Array, tuple[float, float]]:
    """The scores of each set, shape (n,), from a classifier that was trained on the other sets. Also two limits for
    prompts of unseen sets: minimum share of known words, and maximum difference from the training prompts. If there is
    only one set, the scores are NaN."""
    scores = np.full(len(corpus), np.nan)
    several = len(corpus.names) > 1
    parts = [corpus.sets == number for number in range(len(corpus.names))] if several else folds(corpus, FOLDS)
    limits = []
    for number, test in enumerate(parts):
        training = without(corpus, test)
        if not training.any():
            continue
        if several:
            scores[test] = fit_model(corpus, training).scores[test]
            progress(f"unseen: {corpus.names[number]} graded by a fit on the other sets")
        covered = coverage(corpus, known_words(corpus, training), test)
        strange = strangeness(corpus, training, test)
        limits.append((np.quantile(covered, ABSTAIN), np.quantile(strange, 1 - ABSTAIN)))
    progress("unseen limits: " + ", ".join(f"{low:.2f}/{high:.2f}" for low, high in limits))
    least, most = np.median(limits, axis=0)
    return scores, (float(least), float(most))


def _support(corpus: Corpus, limits: tuple[float, float], prior: Artefact | None) -> Support:
    words = known_words(corpus, np.ones(len(corpus), dtype=bool))
    longest = round(REACH * max(len(outcome.prompt) for outcome in corpus.outcomes))
    vocabulary = np.packbits(words)
    if prior is not None:
        vocabulary, longest = vocabulary | prior.support.vocabulary, max(longest, prior.support.longest)
    return Support(vocabulary, limits[0], longest, limits[1])


def _metrics(corpus: Corpus, seen: Array, unseen: Array, seed: int) -> dict[str, Any]:
    report = {}
    for number, name in enumerate(corpus.names):
        members = corpus.sets == number
        weak, strong = corpus.weak[members], corpus.strong[members]
        entry: dict[str, Any] = {
            "prompts": int(members.sum()),
            "weak": round(float(weak.mean()), 4),
            "strong": round(float(strong.mean()), 4),
        }
        for kind, scores in (("in_domain", seen[members]), ("unseen", unseen[members])):
            if np.isfinite(scores).all():
                interval = apgr_interval(scores, weak, strong, seed=seed)
                entry[kind] = [round(value, 4) for value in (apgr(scores, weak, strong), *interval)]
        report[name] = entry
    return report


def _calibration(corpus: Corpus, standard: Array, unseen: Array, fitted: Curves) -> dict[str, Any]:
    report = {
        "source": "cross-validated scores, every set weighing the same",
        "below": [round(float(value), 4) for value in fitted.coefficients[0]],
        "near": [round(float(value), 4) for value in fitted.coefficients[1]],
        "error_in_domain": round(calibration_error(corpus, standard, fitted), 4),
    }
    if np.isfinite(unseen).all():
        elsewhere = (unseen - unseen.mean()) / unseen.std()
        report["error_unseen"] = round(calibration_error(corpus, elsewhere, fitted), 4)
    return report


def source(path: Path) -> dict[str, str]:
    """The name and the SHA-256 of a data file, for the provenance. Raises OSError."""
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status. Progress is printed on standard error."""
    parser = argparse.ArgumentParser(prog="python -m gateway.routing.fit.difficulty", description=__doc__)
    parser.add_argument("--data", nargs="+", type=Path, required=True, metavar="FILE", help="outcomes, JSONL or .gz")
    parser.add_argument("--out", type=Path, required=True, metavar="ARTEFACT", help="where the .npz goes")
    parser.add_argument(
        "--from", dest="prior", type=Path, metavar="ARTEFACT", help="refine this artefact instead of training anew"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap intervals")
    options = parser.parse_args(arguments)

    def progress(line: str) -> None:
        sys.stderr.write(line + "\n")

    try:
        prior = None if options.prior is None else load(options.prior)
        artefact = fit(options.data, progress, seed=options.seed, prior=prior)
        save(artefact, options.out)
    except (ArtefactError, DataError, OSError) as error:
        progress(str(error))
        return 1
    for name, entry in artefact.provenance["sets"].items():
        progress(f"{name:<24} in-domain {entry.get('in_domain')} unseen {entry.get('unseen')}")
    progress(f"written: {options.out} ({options.out.stat().st_size:,} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
