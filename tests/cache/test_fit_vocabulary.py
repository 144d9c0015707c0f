from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import orjson

from gateway.cache.verifier.vocabulary import STEPS
from training.vocabulary import counted, frequencies, project


def lines(*rows: dict[str, str]) -> bytes:
    return b"\n".join(orjson.dumps(row) for row in rows)


def test_words_are_counted_by_language_and_only_what_was_translated(tmp_path: Path) -> None:
    prompts, zipped, pairs, wheel = (tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "p.jsonl", "w.whl"))
    prompts.write_bytes(lines({"text": "Zyx wug, zyx!"}))
    zipped.write_bytes(gzip.compress(lines({"prompt": "a zyx"})))
    kept = {"set": "swap_neg", "lang": "es", "a": "¿Dónde está el zyx?", "b": "¿Dónde está el glorp?"}
    slipped = {"set": "swap_pos", "lang": "es", "a": "¿Blerk está?", "b": "¿Dónde está?"}
    pairs.write_bytes(lines(kept, kept, slipped))
    with ZipFile(wheel, "w") as written:
        told = {"title": "Wug", "steps": {"one": "Flurb the {device} at https://wug.example", "two": ["no"]}}
        for language, text in (
            ("en", "Flurb the {device}"),
            ("es", "Flurbar el {device}"),
            ("pt-BR", "Flurbe a `wug`"),
        ):
            file = f"home/translations/{language}.json"
            written.writestr(file, orjson.dumps(told | {"steps": {"one": text}}))
    counts = counted([prompts, zipped], [pairs], wheel)
    assert (counts["en"]["zyx"], counts["en"]["wug"], counts["en"]["flurb"], counts["en"]["device"]) == (3, 2, 1, 0)
    assert (counts["es"]["zyx"], counts["es"]["blerk"], counts["es"]["glorp"]) == (1, 0, 0)
    assert (counts["es"]["flurbar"], counts["es"]["wug"]) == (1, 0), "a title that is as in English was not translated"
    assert (counts["pt"]["flurbe"], counts["pt"]["wug"]) == (1, 0)


def test_frequencies_are_shares_and_english_words_have_their_place_in_the_vocabulary(tmp_path: Path) -> None:
    counts = {"en": Counter({"zyx": 99, "wug": 1}), "es": Counter({"zyx": 1}), "fr": Counter({"zyx": 2})}
    table = frequencies(counts, {"[CLS]": 0, "the": 1, "##ing": 2, "of": 3, "kitchen": 4})
    assert table["zyx"] == [round(STEPS * np.log10(0.99e9)), 9 * STEPS, 0, 9 * STEPS]
    assert "wug" not in table, "seen once"
    assert "of" not in table, "too short to be surely a word"
    assert table["the"][0] > table["kitchen"][0] > 8 * STEPS


def test_axes_are_those_of_most_variance() -> None:
    chance = np.random.default_rng(0)
    rows = (chance.normal(size=(500, 4)) * [1, 9, 2, 0.1]).astype(np.float32)
    projected = project(rows, 2)
    assert projected.shape == (500, 2)
    assert abs(np.corrcoef(projected[:, 0], rows[:, 1])[0, 1]) > 0.99
    assert np.allclose(projected.std(axis=0), 1, atol=0.05)
