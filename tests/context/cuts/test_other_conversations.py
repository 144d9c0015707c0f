"""A text that one conversation has is never sent in another one that has the same ids and lengths."""

from __future__ import annotations

import orjson
import pytest

from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.dialects.clients import DIALECTS
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, Controls
from tests.context.cuts.test_cutting import CLAUDE, GPT, planned, sent
from tests.context.cuts.test_recall import asked

ALICE = "Who changes the password of the staging server, key A-1111?"
BOBBY = "Who changes the password of the staging server, key B-2222?"


def request_of(user: str, question: str) -> CompletionRequest:
    body = {"model": "m", "user": user, "messages": asked(question).chat().body["messages"]}
    return DIALECTS["openai_chat"].parse(orjson.dumps(body), f"req_{user}", Controls(), {})


@pytest.mark.parametrize("backend", [CLAUDE, GPT], ids=["claude", "gpt"])
async def test_a_question_of_the_same_length_is_not_replaced_by_another_users(backend: Backend) -> None:
    contexts = Contexts(Counter())
    first, second = request_of("alice", ALICE), request_of("bobby", BOBBY)
    await planned(first, backend, contexts=contexts)
    body = orjson.dumps(sent(second, await planned(second, backend, contexts=contexts), backend)).decode()
    contexts.close()
    assert ALICE not in body
    assert BOBBY in body


async def test_an_edited_output_of_the_same_length_is_not_replaced_by_the_earlier_one() -> None:
    contexts = Contexts(Counter())
    one, two = asked(ALICE), asked(ALICE)
    block = two.messages[2]["content"][0]
    block["content"] = block["content"].replace("a", "b")
    first, second = one.request(), two.request()
    await planned(first, contexts=contexts)
    body = sent(second, await planned(second, contexts=contexts))
    fresh = sent(second, await planned(second))
    contexts.close()
    assert body == fresh
