from __future__ import annotations

import pytest

from gateway.backends.cascade.languages import Language
from gateway.backends.cascade.votes import vote


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # numbers, wherever the answer has them
        ("42", "number:42"),
        ("The answer is 42.", "number:42"),
        ("First 3 + 4 = 7.\n#### 1,234", "number:1234"),
        ("So he has $18.50 left.", "number:37/2"),
        ("Total: 5 + 3 = 8 apples", "number:8"),
        ("There are 24 hours in a day, so in two days she sleeps 16.", "number:16"),
        ("The answer is 12 because 3*4=12", "number:12"),
        ("Answer: 10 meters per second", "number:10"),
        ("x = −5", "number:-5"),
        ("I think 75% of them", "number:75"),
        ("Answer: 3/4", "number:3/4"),
        ("Answer: 0.75", "number:3/4"),
        ("She ate 1 1/2 pies", "number:3/2"),
        ("3 \\times 10^5", "number:300000"),
        ("1e3", "number:1000"),
        ("\\boxed{\\frac{3}{4}}", "number:3/4"),
        ("We get \\boxed{5}, then \\(\\boxed{1{,}000}\\).", "number:1000"),
        ("La respuesta es 1.234,50 euros.", "number:2469/2"),
        ("A resposta final é: 25", "number:25"),
        ("<think>Is it 3? No, 4.</think>4", "number:4"),
        # choices
        ("B", "choice:B"),
        ("B. Paris", "choice:B"),
        ("(b) Paris", "choice:B"),
        ("**Answer: C**", "choice:C"),
        ("The correct answer is (D) because the others are wrong.", "choice:D"),
        ("La opción correcta es la B", "choice:B"),
        ("A resposta correta é a alternativa C.", "choice:C"),
        # JSON
        ('{"reasoning": "long", "answer": "42"}', "number:42"),
        ('{"b": 1.0, "a": " X "}', 'json:{"a":"x","b":1}'),
        ('```json\n{"a": 1}\n```', 'json:{"a":1}'),
        # short strings
        ("Paris.", "text:paris"),
        ("  **Yes** ", "text:yes"),
        ("2024-05-01", "text:2024-05-01"),
        ("The final answer is $\\boxed{x^2+1}$", "text:x^2+1"),
        ("12 and 13", "text:12 and 13"),
        # nothing in particular
        ("", None),
        ("A cat sat on the mat and looked out of the window into the garden for hours.", None),
        ("He was born in 1984.\n\nThat is all that is known of him, and it is not much at all, sadly.", None),
        ("Here you are:\n```python\nprint(42)\n```", None),
    ],
)
def test_an_answer_comes_down_to_a_vote(text: str, found: str | None) -> None:
    assert vote({"content": text}) == found


@pytest.mark.parametrize(("spoken", "found"), [("en", "number:617/500"), ("es", "number:1234"), ("pt", "number:1234")])
def test_a_short_answers_thousands_are_those_of_the_questions_language(spoken: Language, found: str) -> None:
    assert vote({"content": "1.234"}, question_language=spoken) == found


def test_where_json_is_wanted_only_whole_json_votes() -> None:
    assert vote({"content": "The answer is 42."}, json_wanted=True) is None
    assert vote({"content": '```json\n{"answer": 42}\n```'}, json_wanted=True) is None
    assert vote({"content": '{"answer": 42}'}, json_wanted=True) == "number:42"


def test_a_tool_call_votes_by_its_name_and_arguments() -> None:
    def calls(arguments: str) -> str | None:
        call = {"id": "random", "type": "function", "function": {"name": "look", "arguments": arguments}}
        return vote({"content": None, "tool_calls": [call]})

    assert calls('{"a": 1, "b": "X"}') == calls('{"b":"x","a":1.0}')
    assert calls('{"a": 1}') != calls('{"a": 2}')
    assert calls('{"a": ') is None


@pytest.mark.parametrize(
    "text",
    [
        "1" * 5000,
        "9e99999",
        "1/0",
        "\\boxed{" + "{" * 2000,
        "[" * 2000,
        "<think>" * 9000,
        "```\n" * 9000,
        "\\boxed{" + "1" * 90_000 + "}",
        '{"answer": 1e999}',
    ],
)
def test_hostile_answers_have_some_vote_or_none(text: str) -> None:
    assert vote({"content": text}) is None or len(str(vote({"content": text}))) < 30_000
