from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import orjson
import pytest

from gateway.routing.difficulty.grader import Grader
from gateway.routing.difficulty.weights_file import Artefact, save
from gateway.routing.fit.corpus import Corpus, folds, read_corpus, without
from gateway.routing.fit.difficulty import fit, main
from gateway.routing.fit.evaluation import DataError
from gateway.routing.fit.mixture import fit_model

TOPICS = ("planets", "rivers", "kings", "metals", "birds", "engines", "poems", "islands")


def _quiet(_: str) -> None:
    return None


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two sets whose strong model wins on proofs and ties on naming."""
    chance = random.Random(5)
    folder, paths = tmp_path_factory.mktemp("outcomes"), []
    for name, weak_proofs in (("first", 0.2), ("second", 0.4)):
        rows = []
        for number in range(150):
            proof = number % 2 == 0
            verb = "Prove a theorem about" if proof else "Name a famous example of"
            prompt = f"{verb} {chance.choice(TOPICS)} and {chance.choice(TOPICS)} in case {name} {number:04d}x{number}."
            weak = float(chance.random() < (weak_proofs if proof else 0.95))
            middle = float(chance.random() < (0.75 if proof else 0.95))
            rows.append({"prompt": prompt, "w": weak, "s": 1.0, "q": {"middle": middle}})
        paths.append(folder / f"{name}.jsonl")
        paths[-1].write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    return paths


@pytest.fixture(scope="module")
def corpus(files: list[Path]) -> Corpus:
    return read_corpus(files, _quiet)


@pytest.fixture(scope="module")
def fitted(files: list[Path]) -> Artefact:
    return fit(files, _quiet)


def test_the_command_writes_an_artefact_that_orders_new_prompts(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.npz"
    assert main(["--data", *map(str, files), "--out", str(out)]) == 0
    grader = Grader.load(out)
    hard = grader.grade("Prove a theorem about lakes and metals.")
    easy = grader.grade("Name a famous example of lakes and metals.")
    assert easy.difficulty < 0.5 < hard.difficulty
    said = capsys.readouterr().err
    assert "fold 5 of 5" in said
    assert "unseen: second" in said
    assert "first" in grader.artefact.provenance["sets"]


def test_no_prompt_is_kept_in_the_artefact(files: list[Path], tmp_path: Path) -> None:
    main(["--data", *map(str, files), "--out", str(tmp_path / "mine.npz")])
    with np.load(tmp_path / "mine.npz") as arrays:
        assert all(arrays[name].dtype.kind in "iuf" for name in arrays.files)
        assert b"theorem" not in arrays["provenance"].tobytes()


def test_too_few_prompts_are_refused(files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = tmp_path / "few.jsonl"
    few.write_bytes(b"\n".join(files[0].read_bytes().splitlines()[:20]))
    assert main(["--data", str(few), "--out", str(tmp_path / "no.npz")]) == 1
    assert "at least 200" in capsys.readouterr().err
    assert not (tmp_path / "no.npz").exists()


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path / "absent.jsonl"), "--out", str(tmp_path / "no.npz")]) == 1
    assert "absent.jsonl" in capsys.readouterr().err


def test_one_set_alone_has_no_unseen_figure(files: list[Path], tmp_path: Path) -> None:
    rows = [{**orjson.loads(line), "dataset": "one"} for path in files for line in path.read_bytes().splitlines()]
    (tmp_path / "one.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    artefact = fit([tmp_path / "one.jsonl"], _quiet)
    assert set(artefact.provenance["sets"]["one"]) == {"prompts", "weak", "strong", "in_domain"}
    assert artefact.support.least_coverage > 0


def test_serving_scores_as_training_does(corpus: Corpus, fitted: Artefact) -> None:
    model = fit_model(corpus, np.ones(len(corpus), dtype=bool))
    grader = Grader(fitted)
    served = [grader.score(features) for features in corpus.features[:20]]
    assert np.allclose(served, model.scores[:20], atol=1e-4)


def test_an_artefact_is_refined_with_few_outcomes_of_another_kind(
    files: list[Path], fitted: Artefact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prior holds proofs for hard; in the new domain it is songs."""
    chance, rows = random.Random(6), []
    for number in range(80):
        song = number % 2 == 0
        prompt = f"{'Sing' if song else 'Prove'} me {chance.choice(TOPICS)} and {chance.choice(TOPICS)} as {number}x."
        rows.append({"prompt": prompt, "w": float(chance.random() < (0.1 if song else 0.95)), "s": 1.0})
    data, prior, out = (tmp_path / name for name in ("songs.jsonl", "prior.npz", "mine.npz"))
    data.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    save(fitted, prior)
    assert main(["--data", str(data), "--from", str(prior), "--out", str(out)]) == 0, capsys.readouterr().err
    before, after = Grader.load(prior), Grader.load(out)
    singing, proving = "Sing me rivers and kings as 7x.", "Prove me rivers and kings as 7x."
    assert before.grade(singing).difficulty < before.grade(proving).difficulty
    assert after.grade(singing).difficulty > after.grade(proving).difficulty
    entry = after.artefact.provenance["sets"]["songs"]
    assert entry["in_domain"][0] > entry["unseen"][0]
    assert after.artefact.provenance["prior"] == fitted.provenance["data"]


def test_a_refined_artefact_still_knows_the_words_of_its_prior(
    fitted: Artefact, files: list[Path], tmp_path: Path
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_bytes(b"\n".join(b'{"prompt": "quartz %d", "w": 0, "s": 1}' % number for number in range(60)))
    refined = fit([few], _quiet, prior=fitted)
    known, before = (np.unpackbits(each.support.vocabulary) for each in (refined, fitted))
    assert (known >= before).all()
    assert known.sum() == before.sum() + 1
    with pytest.raises(DataError, match="at least 200"):
        fit([few], _quiet)


def test_cross_validated_figures_find_the_signal(fitted: Artefact) -> None:
    for entry in fitted.provenance["sets"].values():
        assert entry["in_domain"][0] > 0.6
        assert entry["unseen"][0] > 0.6


def test_adequacy_falls_with_difficulty_and_cutoffs_rise_with_what_may_be_lost(fitted: Artefact) -> None:
    (below, slope), (near, _) = fitted.curves.coefficients
    assert slope < 0
    assert near > below
    assert (np.diff(fitted.curves.cutoffs, axis=1) >= 0).all()
    assert fitted.curves.cutoffs[0][0] < fitted.curves.cutoffs[0][-1]


def test_folds_keep_all_forms_of_a_question_together(tmp_path: Path) -> None:
    question = "How many apples are left when Ann eats three of them? She had nine in her basket this morning."
    forms = [question, question.upper(), f"{question}\nA. 3\nB. 6\nC. 9\nD. 12", "Something else entirely, please."]
    path = tmp_path / "forms.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"prompt": form, "w": 0, "s": 1}) for form in forms))
    corpus = read_corpus([path], _quiet)
    assert len(set(corpus.questions[:3].tolist())) == 1
    assert corpus.questions[3] != corpus.questions[0]
    assert sum(test[:3].all() for test in folds(corpus, 5)) == 1
    held = np.array([True, False, False, False])
    assert without(corpus, held).tolist() == [False, False, False, True]


def test_a_prompt_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "double.jsonl"
    path.write_bytes(b'{"prompt": "same", "w": 0, "s": 1}\n' * 3)
    assert len(read_corpus([path], _quiet)) == 1


def test_a_bad_line_stops_the_fit(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"{}\n")
    with pytest.raises(DataError, match=r"bad\.jsonl:1"):
        fit([tmp_path / "bad.jsonl"], _quiet)
