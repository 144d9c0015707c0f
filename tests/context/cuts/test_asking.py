"""Requests for information without a question mark."""

from __future__ import annotations

import pytest

from gateway.context.cuts import recall

ASKED = """Tell me the port that the server used
Please remind me which port it was
List the errors from the log
what was the port
Dime el puerto del servidor
cuál era el puerto
Diz-me a porta do servidor
qual era a porta"""
ORDERS = """Fix the bug in x
Run the tests again
When done, run the linter
Arregla el error
Corre los tests
Executa os testes"""


@pytest.mark.parametrize("text", ASKED.split("\n"))
def test_a_request_for_information_counts_without_a_question_mark(text: str) -> None:
    assert recall.questions_in(text) == [text]


@pytest.mark.parametrize("text", ORDERS.split("\n"))
def test_an_instruction_is_no_question(text: str) -> None:
    assert not recall.questions_in(text)
