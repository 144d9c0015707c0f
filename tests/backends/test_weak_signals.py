from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.cascade.weak_signals import Reader, repeats
from gateway.domain.routing.strategy import StrategyAnswer
from tests.support.requests import chat_request

ENGLISH = "What is the name of the river that runs through the city in which you were born, and how long is it?"


def read(text: str | None, finish: str = "stop", *, asked: str = "hello", **fields: Any) -> StrategyAnswer:
    choices = [{"message": {"role": "assistant", "content": text}}]
    return Reader(chat_request(asked, **fields)).answered("small", choices, finish, None)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that request.",
        "I am sorry, I cannot do that.",
        "Unfortunately, I cannot answer this.",
        "I cannot help with that.",
        "I can’t provide that.",
        "I'm unable to answer that question.",
        "I don't know.",
        "As an AI language model, I have no opinions.",
        "Lo siento, pero no puedo ayudar con eso.",
        "Lo siento, no sé.",
        "No puedo responder a esa pregunta.",
        "Como modelo de lenguaje, no tengo acceso a internet.",
        "Desculpe, mas não posso ajudar com isso.",
        "Infelizmente, não consigo responder.",
        "Não posso fornecer essa informação.",
        "Como um modelo de linguagem, não tenho opiniões.",
    ],
)
def test_declining_is_recognised_in_three_languages(text: str) -> None:
    assert read(text).weak == "refusal"


@pytest.mark.parametrize(
    "text",
    [
        "Paris.",
        "I can help with that: first, open the file.",
        "Sorry for the delay in shipping; here is the draft you asked for.",
        "No puedo más is a Spanish expression that means 'I can't go on'.",
        "Lo siento means 'I am sorry'.",
        "I'm sorry, but I can't" + " sing the song that follows word for word; here is a long summary of it." * 10,
    ],
)
def test_what_only_sounds_like_declining_is_an_answer(text: str) -> None:
    assert read(text).weak in ("", "repetition")
    assert read(text[:400] + " Now something else.").weak == ""


def test_a_sound_answer_has_a_vote_and_a_weak_one_has_none() -> None:
    assert read("The answer is 7.") == StrategyAnswer("small", "number:7")
    assert read("I don't know, perhaps 7.").vote is None


def test_what_is_missing_or_filtered_is_weak() -> None:
    assert read("").weak == read(None).weak == "empty"
    assert read("x", finish="content_filter").weak == "refusal"


def test_cut_answers_are_weak_unless_the_client_set_the_limit() -> None:
    assert read("Once upon a time", finish="length").weak == "truncated"
    assert read("Once upon a time", finish="length", max_tokens=4).weak == ""


def test_a_loop_of_words_is_weak_and_rows_of_marks_are_not() -> None:
    assert read("Well. " + "I will say it again. " * 20).weak == "repetition"
    assert repeats("no " * 200)
    assert not repeats("-" * 1000)
    assert not repeats("0, " * 500)
    assert not repeats("again " * 10)


def test_json_that_is_not_what_was_asked_for_is_weak() -> None:
    assert read("Here you are.", response_format={"type": "json_object"}).weak == "invalid_json"
    assert read('{"a": 1}', response_format={"type": "json_object"}).vote == 'json:{"a":1}'


def test_a_tool_call_is_an_answer_unless_the_tool_does_not_take_it() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    reader = Reader(chat_request(tools=[{"type": "function", "function": {"name": "add", "parameters": schema}}]))

    def called(name: str, arguments: str) -> str:
        message = {"content": None, "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        return reader.answered("small", [{"message": message}], "tool_calls", None).weak

    assert called("add", '{"n": 1}') == ""
    assert called("add", '{"n": "one"}') == called("take", "{}") == "invalid_tool_call"


def test_an_answer_in_another_language_than_the_questions_is_weak() -> None:
    spanish = "El nombre del río que pasa por la ciudad es el Tajo, y es el más largo de los de la península."
    assert read(spanish, asked=ENGLISH).weak == "off_language"
    assert read(spanish, asked=ENGLISH + " Answer in Spanish.").weak == ""
    assert read("Tajo.", asked=ENGLISH).weak == ""
    assert (
        read("这条河流经我出生的城市,它的名字叫做黄浦江,长度大约是一百一十三公里。", asked=ENGLISH).weak
        == "off_language"
    )


def test_a_beginning_is_reason_enough_to_stop_when_it_declines_or_breaks_its_json() -> None:
    reader = Reader(chat_request(response_format={"type": "json_object"}))
    assert reader.beginning("I'm sorry, but I cannot", thinks=False) == "refusal"
    assert reader.beginning("Sure, here", thinks=False) == "invalid_json"
    assert reader.beginning('{"a": [1, 2', thinks=False) == ""
    assert reader.beginning("Sure, here", thinks=True) == ""
    assert reader.beginning("again and again " * 30, thinks=True) == "repetition"


def test_an_answer_that_cannot_be_judged_has_no_vote_and_may_be_shown() -> None:
    deep = '{"a":' * 1000 + "1" + "}" * 1000
    assert read(deep) == StrategyAnswer("small", None)


def test_odd_answers_are_empty_rather_than_errors() -> None:
    reader = Reader(chat_request())
    odd: list[list[dict[str, Any]]] = [[], [{}], [{"message": None}], [{"message": {"content": [{"type": "text"}]}}]]
    for choices in odd:
        assert reader.answered("small", choices, "", None).weak == "empty"
