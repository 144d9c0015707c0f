from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

import gateway.routing
from gateway.domain.request import Turn
from gateway.domain.routing.route import Grade
from gateway.errors import BadRequest
from gateway.routing.difficulty.features import extract
from gateway.routing.difficulty.grader import Grader, grade_lines
from tests.routing.conftest import EASY, HARD, SPANISH

ROOM = Path(gateway.routing.__file__).parent


def test_an_easy_question_is_easier_than_a_hard_one(grader: Grader) -> None:
    easy, hard = grader.grade(EASY), grader.grade(HARD)
    assert 0 < easy.difficulty < hard.difficulty < 1
    assert (easy.abstained, hard.abstained) == (False, False)


def test_the_same_text_gets_the_same_grade_whatever_its_case_and_spaces(grader: Grader) -> None:
    assert grader.grade(HARD) == grader.grade(HARD.upper().replace(" ", "  \n"))


@pytest.mark.parametrize(
    "text",
    [
        SPANISH,
        "Explícame la diferencia entre una variable local y una variable global.",
        "Escreva um e-mail educado pedindo o adiamento da reunião de quinta-feira.",
        "como faco para trocar a senha do meu banco pelo celular",
        "Wie heißt die Hauptstadt von Frankreich?",
        "日本語で答えてください。富士山の高さは?",
        "a" * 3000,
        "",
        "12*7=",
        "What does this mean? " + "word salad of length " * 500,
    ],
)
def test_it_abstains_outside_what_training_saw(grader: Grader, text: str) -> None:
    assert grader.grade(text).abstained


def test_it_abstains_on_code_and_data_dumps(grader: Grader) -> None:
    code = (ROOM / "difficulty" / "features.py").read_text()[:4000]
    data = orjson.dumps([{"id": n, "name": f"user{n}", "email": f"u{n}@example.com"} for n in range(60)]).decode()
    assert grader.grade(code).abstained
    assert grader.grade(f"Fix the bug in this code:\n```\n{code}\n```").abstained
    assert grader.grade(data).abstained


@pytest.mark.parametrize(
    "text",
    [
        EASY,
        HARD,
        "hello",
        "What is 2 + 2?",
        "Solve x^2 - 5x + 6 = 0 for x.",
        "Summarise the causes of the French Revolution in three sentences.",
        "Write a function that returns the largest element of a list.",
        "A train leaves at 9:40 and arrives at 13:05. How long is the journey in minutes?",
    ],
)
def test_ordinary_english_is_within_what_it_knows(grader: Grader, text: str) -> None:
    assert not grader.grade(text).abstained


def test_a_reason_is_given_for_lying_outside(grader: Grader) -> None:
    assert grader.outside(SPANISH, extract(SPANISH)) == "unknown words"
    assert grader.outside(EASY, extract(EASY)) == ""


def test_a_conversation_is_as_hard_as_its_hardest_recent_question(grader: Grader) -> None:
    turns = [
        Turn(0, "user", HARD),
        Turn(1, "assistant", "Because every element is its own inverse."),
        Turn(2, "user", EASY),
    ]
    assert grader.grade_turns(turns).difficulty == grader.grade(HARD).difficulty
    later = [Turn(n, "user", EASY) for n in range(1, 5)]
    assert grader.grade_turns([turns[0], *later]).difficulty == grader.grade(EASY).difficulty


def test_a_conversation_with_an_unknown_part_abstains(grader: Grader) -> None:
    assert grader.grade_turns([Turn(0, "user", SPANISH), Turn(1, "user", EASY)]).abstained


def test_system_prompts_are_not_graded(grader: Grader) -> None:
    assert grader.grade_turns([Turn(-1, "system", SPANISH), Turn(0, "user", EASY)]) == grader.grade(EASY)


@pytest.mark.parametrize(
    ("turns", "needs"),
    [
        ([Turn(0, "user", EASY)], frozenset({"tools"})),
        ([Turn(0, "user", EASY)], frozenset({"vision"})),
        ([Turn(0, "user", EASY, images=1)], frozenset()),
        ([Turn(0, "user", EASY), Turn(1, "assistant", "", calls=("c1",))], frozenset()),
        ([Turn(0, "user", EASY), Turn(1, "tool", "42", results=("c1",))], frozenset()),
        ([Turn(0, "system", EASY)], frozenset()),
        ([Turn(n, "user", "word salad of length " * 100) for n in range(5)], frozenset()),
    ],
)
def test_agents_images_and_long_conversations_abstain(grader: Grader, turns: list[Turn], needs: frozenset[str]) -> None:
    assert grader.grade_turns(turns, needs).abstained


def test_lines_of_prompts_and_messages_are_graded_alike(grader: Grader) -> None:
    lines = [
        orjson.dumps({"id": "a", "prompt": EASY}),
        b"\n",
        orjson.dumps({"id": 2, "messages": [{"role": "user", "content": EASY}]}),
        orjson.dumps({"id": "c", "prompt": SPANISH}),
    ]
    first, second, third = (orjson.loads(line) for line in grade_lines(lines, grader))
    assert first == {"id": "a", "difficulty": grader.grade(EASY).difficulty}
    assert second == {"id": 2, "difficulty": first["difficulty"]}
    assert third["abstained"] is True


@pytest.mark.parametrize(
    "line",
    [
        b"{nonsense",
        b"[]",
        b'{"prompt": "no id"}',
        b'{"id": 1}',
        b'{"id": 1, "prompt": "x", "messages": []}',
        b'{"id": 1, "prompt": 7}',
        b'{"id": 1, "messages": []}',
    ],
)
def test_a_bad_line_is_named(grader: Grader, line: bytes) -> None:
    with pytest.raises(BadRequest, match="line 2"):
        list(grade_lines([b'{"id": 1, "prompt": "fine"}', line], grader))


def test_serving_imports_neither_scikit_learn_nor_scipy() -> None:
    program = (
        "import sys; from gateway.routing.difficulty.grader import Grader; import gateway.routing.router;"
        "Grader.load().grade('hello'); sys.exit(any(name in sys.modules for name in ('sklearn', 'scipy', 'pandas')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_serving_code_knows_no_data_set_by_name(grader: Grader) -> None:
    names = ("mmlu", "gsm", "trivia", "mbpp", "human_eval", "gpqa", *grader.artefact.provenance["sets"])
    for source in ROOM.rglob("*.py"):
        assert not [name for name in names if name in source.read_text().lower()], source


def test_the_artefact_is_small_and_says_where_it_comes_from(grader: Grader) -> None:
    assert (ROOM / "data" / "difficulty.npz").stat().st_size < 2 * 2**20
    provenance = grader.artefact.provenance
    assert {"made", "seed", "data", "prompts", "sets", "calibration", "support"} <= provenance.keys()
    assert all(len(source["sha256"]) == 64 for source in provenance["data"])


def test_its_measured_figures_keep_the_bars(grader: Grader) -> None:
    """Cross-validated on the sets it was trained on, and on sets left out of training."""
    sets = grader.artefact.provenance["sets"].values()
    unseen = [entry["unseen"] for entry in sets]
    assert sum(value for value, _, _ in unseen) / len(unseen) >= 0.53
    assert all(high >= 0.5 for _, _, high in unseen)
    assert all(entry["in_domain"][0] > 0.5 for entry in sets)


def test_turns_are_graded_once_for_each_owner_alone(grader: Grader) -> None:
    class Counting(Grader):
        graded = 0

        def grade(self, text: str) -> Grade:
            self.graded += 1
            return super().grade(text)

    counting = Counting(grader.artefact)
    turns = [Turn(0, "user", EASY), Turn(1, "assistant", "Well."), Turn(2, "user", HARD)]
    for owner, graded in (("a", 2), ("a", 2), ("b", 4), ("a", 4)):
        assert counting.grade_turns(turns, owner=owner) == grader.grade_turns(turns)
        assert counting.graded == graded
    assert (
        counting.grade_turns([*turns, Turn(3, "user", "And why?")], owner="a").difficulty
        >= grader.grade(HARD).difficulty
    )
    assert counting.graded == 5
