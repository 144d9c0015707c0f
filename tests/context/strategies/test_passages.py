"""Passages are the whole text, in order; questions are found at its edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.strategies.passages import passages
from gateway.context.strategies.question import questions_in


@given(st.text(alphabet="ab .\n#?", max_size=3000))
def test_passages_are_the_whole_text_in_order(text: str) -> None:
    parts = passages(text)
    assert "".join(text[part.start : part.end] for part in parts) == text
    assert all(part.start < part.end for part in parts)


def test_blank_lines_are_read_in_linear_time() -> None:
    text = "A paragraph.\n" + " \t\n" * 10**5 + " " * 10**6  # a search from every character would take hours
    (part,) = passages(text)
    assert (part.start, part.end) == (0, len(text))


def test_a_heading_is_in_the_passage_of_its_paragraph() -> None:
    paragraph = "A paragraph that is long enough to be a passage of its own, because it has many words in it. " * 3
    text = f"{paragraph}\n\n## Heading\n\n{paragraph}"
    first, second = passages(text)
    assert text[second.start : second.end].strip().startswith("## Heading")
    assert "Heading" not in text[first.start : first.end]


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        ("Where is it?", ("Where is it?",)),
        ("a\n" * 50 + "¿Cuándo vence el acuerdo?", ("¿Cuándo vence el acuerdo?",)),
        ("Quem fechou?\n" + "a\n" * 50, ("Quem fechou?",)),
        ("a\n" * 50 + "Where is it?\nAnswer in one word.", ("Where is it?",)),
        ("a\n" * 50 + "Where is it?\n" + "b\n" * 50, ()),
        ("No question. " * 60 + "Where is it?", ("Where is it?",)),
        ("Fix the bug.", ()),
        ("¿Puedes resumir el texto?", ()),
        ("No question. " * 60 + "Is 1.5 of a.b!c it?No more. " * 2 + "x" * 500, ("Is 1.5 of a.b!c it?",)),
        pytest.param("Where is it? " + "x" * 10**6, ("Where is it?",), id="no search from every character"),
        pytest.param("Where is it? " + "x!" * 10**6, ("Where is it?",), id="no search from every mark"),
    ],
)
def test_questions_are_found_at_both_ends(text: str, questions: tuple[str, ...]) -> None:
    assert questions_in(text) == questions
