"""Long documents beside a question: what is sent of them, when nothing is left out, and that a cut stays the same."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.context.count import Counter
from gateway.context.cuts.session import NO_CUT, Cut
from gateway.context.estimate import estimate
from gateway.context.plan import Contexts
from gateway.context.strategies.relevance import Relevance, documents
from gateway.dialects.registry import translators
from gateway.domain.holdout import is_held_out
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant
from gateway.runtime.off_loop import OffLoop
from tests.context.conftest import hosted_of
from tests.fakes.embedder import FakeEmbedder
from tests.support.requests import chat_request, messages_request, request_in, user

FACT = "The password of the staging server is changed by Marta Olsen on Thursdays."
QUESTION = "Who changes the password of the staging server?"
TOPICS = (
    "gardens",
    "rivers",
    "trains",
    "bread",
    "music",
    "maps",
    "winter",
    "glass",
    "horses",
    "paper",
    "ships",
    "salt",
)


def document(fact: str = FACT) -> str:
    """Paragraphs about several topics, with `fact` as a paragraph in the middle."""
    paragraphs = [
        f"People have long written about {topic}, and most of what they wrote about {topic} was soon forgotten again. "
        f"In the older books about {topic} there are pictures which nobody can explain, and in the newer ones there "
        f"are long lists that only those who know {topic} well will ever want to read from beginning to end."
        for topic in TOPICS
    ]
    paragraphs.insert(len(paragraphs) // 2, fact)
    return "\n\n".join(paragraphs)


def tenant(*, key: str = "k1", holdout: float = 0.0, mode: Any = "relevant") -> Tenant:
    policy = Policy(team="search", context=ContextPolicy(long_documents=mode, holdout=holdout))
    return Tenant(Key(key, "search"), policy)


def strategy(embedder: FakeEmbedder | None = None, **more: Any) -> Relevance:
    return Relevance(embedder or FakeEmbedder(), OffLoop(), **more)


async def texts(request: CompletionRequest, who: Tenant | None = None, by: Relevance | None = None) -> dict[int, str]:
    return (await (by or strategy()).cut(request, who or tenant(), NO_CUT)).texts


def tool_request(text: str, question: str = QUESTION, **fields: Any) -> CompletionRequest:
    call = {"id": "c1", "type": "function", "function": {"name": "leer", "arguments": "{}"}}
    messages = [
        user(question),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    return chat_request(messages=messages, **fields)


@pytest.mark.parametrize(
    "request_",
    [
        chat_request(f"{document()}\n\n{QUESTION}"),
        chat_request(f"{QUESTION}\n\n{document()}"),
        chat_request(messages=[user(document()), user(QUESTION)]),
        messages_request(f"{document()}\n\n{QUESTION}"),
        tool_request(document()),
    ],
    ids=["question last", "question first", "two messages", "Anthropic", "tool"],
)
async def test_the_passages_that_answer_the_question_stay_in_at_most_half_of_the_tokens(
    request_: CompletionRequest,
) -> None:
    (sent,) = (await texts(request_)).values()
    whole = max((turn.text for turn in request_.turns), key=len)
    assert FACT in sent
    assert estimate(sent) <= estimate(whole) / 2
    assert "left out" in sent
    assert QUESTION in sent or QUESTION not in whole


async def test_the_mark_says_how_to_get_the_rest() -> None:
    (sent,) = (await texts(tool_request(document()))).values()
    assert "repeat the call or ask for them to read them" in sent


CODE = "\n".join(f"def read_{name}(path: str) -> int:\n    return len(open(path).read())\n" for name in TOPICS * 4)
DATA = "[" + ",".join(f'{{"name": "{name}", "value": {at}}}' for at, name in enumerate(TOPICS * 8)) + "]"
NUMBERED = "\n".join(f"{at:6}→{line}" for at, line in enumerate(document().split("\n")))
TABLE = "\n".join(f"{name};{at};{at * 3};open;2026-11-{at % 28 + 1}" for at, name in enumerate(TOPICS * 9))


@pytest.mark.parametrize("text", [CODE, DATA, NUMBERED, TABLE], ids=["code", "JSON", "numbered", "table"])
async def test_code_data_and_numbered_files_stay_whole(text: str) -> None:
    assert len(text) > 2000
    assert await texts(tool_request(text)) == {}


@pytest.mark.parametrize(
    "question",
    [
        "Can you summarise this?",
        "¿Puedes resumir este texto?",
        "Você pode traduzir o texto?",
        "What are all the topics?",
        "Change the password.",
    ],
)
async def test_a_document_stays_whole_if_the_question_concerns_all_of_it_or_there_is_none(question: str) -> None:
    assert await texts(chat_request(f"{document()}\n\n{question}")) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_effort": "high"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    ],
)
async def test_requests_with_signed_thinking_or_a_schema_are_sent_whole(fields: dict[str, Any]) -> None:
    assert await texts(tool_request(document(), **fields)) == {}


async def test_system_prompts_and_texts_with_instructions_beside_results_stay_whole() -> None:
    system = {"role": "system", "content": document()}
    assert await texts(chat_request(messages=[system, user(QUESTION)])) == {}


async def test_the_same_session_gets_the_same_cut_from_every_worker() -> None:
    first = await texts(tool_request(document()))
    later = tool_request(document())
    more = [*later.body["messages"], {"role": "assistant", "content": "Marta."}, user("And when are trains mentioned?")]
    one = strategy()
    for _ in range(2):
        assert await texts(chat_request(messages=more), by=one) == first


async def test_a_document_without_a_question_stays_whole_when_one_is_asked_later() -> None:
    messages = [user(document()), {"role": "assistant", "content": "I have read it."}, user(QUESTION)]
    assert await texts(chat_request(messages=messages)) == {}


async def test_without_the_embedder_the_request_is_sent_whole() -> None:
    embedder = FakeEmbedder(ready=False)
    by = strategy(embedder)
    assert await texts(tool_request(document()), by=by) == {}
    assert by.stats()["documents_failed"] == 1
    embedder.ready = True
    assert await texts(tool_request(document()), by=by) == {}, "the session keeps what was decided first"


async def test_nothing_is_shared_between_api_keys() -> None:
    embedder = FakeEmbedder()
    by = strategy(embedder)
    await texts(tool_request(document()), tenant(key="k1"), by)
    seen = len(embedder.texts)
    await texts(tool_request(document()), tenant(key="k2"), by)
    assert len(embedder.texts) == 2 * seen
    assert len(embedder.owners) == 2


async def test_sessions_that_are_held_out_teams_that_lose_and_untouched_requests_are_sent_whole() -> None:
    name = next(name for name in map(str, range(1000)) if is_held_out("search", name, 0.5))
    held = tool_request(document(), controls=Controls(session=name))
    assert await texts(held, tenant(holdout=0.5)) == {}
    assert await texts(tool_request(document()), by=strategy(switched_off=lambda team: team == "search")) == {}
    assert await texts(tool_request(document(), controls=Controls(untouched=True))) == {}
    assert await texts(tool_request(document()), tenant(mode="keep")) == {}


async def test_an_output_that_was_cut_already_is_not_cut_again() -> None:
    request = tool_request(document())
    found = await strategy().cut(request, tenant(), Cut({2: "cut"}, tokens=7))
    assert (found.texts, found.tokens) == ({2: "cut"}, 7)


def test_only_the_last_user_message_before_a_tools_result_asks_about_it() -> None:
    request = tool_request(document())
    assert documents(request.turns) == [(2, (QUESTION,))]


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages", "openai_responses", "bedrock_converse"])
async def test_the_body_that_is_sent_has_the_cut_document_in_every_dialect(dialect: str) -> None:
    request = request_in(dialect, f"{document()}\n\n{QUESTION}")
    if dialect == "bedrock_converse":
        request = request_in(dialect, messages=[{"role": "user", "content": [{"text": f"{document()}\n\n{QUESTION}"}]}])
    backend = hosted_of(model="gpt-5")
    contexts = Contexts(Counter(), strategy=strategy())
    plan = await contexts.plan_for(request, tenant(), backend)
    assert plan.frozen
    assert plan.tokens_after < plan.tokens_before * 0.55
    body = translators(request.dialect, backend.spoken)[0].body(request, "gpt-5", plan).decode()
    assert FACT in body
    assert QUESTION in body
    assert "left out" in body
    assert sum(topic in body for topic in TOPICS) < len(TOPICS)
    untouched = await Contexts(Counter()).plan_for(request, tenant(), backend)
    assert not untouched.touched
