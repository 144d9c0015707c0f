"""An answer that a client reports as wrong: what the provider receives of it in later requests, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from gateway.context.strategies.flagged_turns import MARK
from tests.api.conftest import Api
from tests.fakes.provider import Reply
from tests.support.requests import user
from tests.support.waiting import until

POLICY = "context: {flagged_turns: leave_out}\ncache: {enabled: false}\n"
WRONG = "The moon is made of cheese, and this answer says so at some length."
QUESTION = user("What is the moon made of?")


@pytest.fixture
async def careful(api: Api) -> Api:
    """Two keys of a team that leaves wrong answers out, and one of another such team."""
    for team in ("careful", "other"):
        await asyncio.to_thread((api.folder / f"{team}.yaml").write_text, f"team: {team}\n{POLICY}")
        await api.key(team, team)
    await api.key("colleague", "careful")
    await api.policies.reload()
    api.flags.begin()
    return api


async def ask(api: Api, *messages: dict[str, Any], key: str = "careful", **more: Any) -> str:
    """The id of an answered request with these messages."""
    headers = {"x-thriftgate-session": "s1", **more.pop("headers", {})}
    body = orjson.dumps({"model": "small", "messages": list(messages), **more})
    client = await api.client(body, key=key, headers=headers).run()
    assert client.status == 200, client.body
    return client.headers["x-request-id"]


async def answered_wrongly(api: Api, key: str = "careful", **more: Any) -> str:
    api.gateway.provider.script(Reply(text=WRONG))
    return await ask(api, QUESTION, key=key, **more)


async def rate(api: Api, request_id: str, key: str = "careful", **rating: Any) -> None:
    flagged = len(api.flags)
    path = f"/v1/requests/{request_id}/feedback"
    client = await api.send(path, method="POST", key=key, body=orjson.dumps(rating))
    assert client.status == 201
    if rating == {"rating": "bad"}:
        await until(lambda: len(api.flags) > flagged)


def sent(api: Api) -> list[dict[str, Any]]:
    """The messages of the newest request to the provider."""
    messages: list[dict[str, Any]] = orjson.loads(api.gateway.provider.exchanges[-1].body)["messages"]
    return messages


def history(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [QUESTION, {"role": "assistant", "content": WRONG}, user("And the sun?"), *more]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_reported_as_wrong_is_left_out_of_all_later_requests(
    careful: Api, stream: bool
) -> None:
    await rate(careful, await answered_wrongly(careful, stream=stream), rating="bad")
    await ask(careful, *history())
    first = sent(careful)
    assert [message["content"] for message in first] == [QUESTION["content"], MARK, "And the sun?"]
    await ask(careful, *history({"role": "assistant", "content": "Of gas."}, user("Sure?")))
    assert sent(careful)[:3] == first
    rows = [row for row in await careful.gateway.rows() if row["team"] == "careful"]
    assert [row["outcome"] for row in rows] == ["ok"] * 3


@pytest.mark.parametrize("rating", [{"rating": "good"}, {"score": 0.4}, {"cache": "right"}])
async def test_an_answer_with_another_rating_is_sent(careful: Api, rating: dict[str, Any]) -> None:
    await rate(careful, await answered_wrongly(careful), **rating)
    await ask(careful, *history())
    assert sent(careful) == history()


async def test_a_report_that_is_taken_back_before_the_next_request_has_no_effect(careful: Api) -> None:
    request_id = await answered_wrongly(careful)
    await rate(careful, request_id, rating="bad")
    await rate(careful, request_id, rating="good")
    await until(lambda: not len(careful.flags))
    await ask(careful, *history())
    assert sent(careful) == history()


@pytest.mark.parametrize("key", ["other", "colleague"])
async def test_an_equal_session_of_another_key_keeps_its_answer(careful: Api, key: str) -> None:
    await answered_wrongly(careful, key=key)
    await rate(careful, await answered_wrongly(careful), rating="bad")
    await ask(careful, *history(), key=key)
    assert sent(careful) == history()


async def test_a_new_answer_in_the_place_of_the_wrong_one_is_sent(careful: Api) -> None:
    await rate(careful, await answered_wrongly(careful), rating="bad")
    better = [QUESTION, {"role": "assistant", "content": "Of rock."}, user("And the sun?")]
    await ask(careful, *better)
    assert sent(careful) == better


async def test_a_client_that_asks_for_an_untouched_context_gets_it(careful: Api) -> None:
    await rate(careful, await answered_wrongly(careful), rating="bad")
    await ask(careful, *history(), headers={"x-thriftgate-context": "untouched"})
    assert sent(careful) == history()
