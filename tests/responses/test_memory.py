"""A request that names an earlier response is made to stand alone; what it is answered can be named by the next."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from gateway.domain.request import Controls
from gateway.domain.text.truncation import cut_apart
from gateway.errors import BadRequest, Overloaded, UnknownResponse
from gateway.responses.memory import StoredContext
from gateway.responses.store import Responses
from gateway.state.sql.database import Database
from gateway.state.sql.tables import responses
from tests.responses.samples import QUESTION, answer, ask, stored, tenant


@pytest.fixture
def store(database: Database) -> Responses:
    return Responses(database)


@pytest.fixture
def memory(store: Responses) -> StoredContext:
    return StoredContext(store, 20_000)


async def test_an_earlier_response_is_put_before_the_input(memory: StoredContext, store: Responses) -> None:
    await store.put(tenant("search"), stored())
    request = ask(previous_response_id="resp_1", input="and now?", instructions="Be brief.")
    await memory.recall(request, tenant())
    last = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and now?"}]}
    assert request.body["input"] == [QUESTION, answer(), last]
    assert request.body["previous_response_id"] is None
    assert orjson.loads(request.raw) == request.body
    turns = [(turn.index, turn.role, turn.text) for turn in request.turns]
    assert turns == [
        (-1, "system", "Be brief."), (0, "user", "first"), (1, "assistant", "said"), (2, "user", "and now?"),
    ]  # fmt: skip
    assert (request.store, request.echoed["previous_response_id"]) == (True, "resp_1")


async def test_instructions_are_not_carried_over(memory: StoredContext, store: Responses) -> None:
    first = ask("req_1", instructions="Be brief.")
    await memory.recall(first, tenant())
    body = {"id": "resp_1", "instructions": "Be brief.", "output": [answer()]}
    await memory.keep(first, tenant(), orjson.dumps(body))
    request = ask(previous_response_id="resp_1")
    await memory.recall(request, tenant())
    assert "instructions" not in request.body
    assert [turn.role for turn in request.turns] == ["user", "assistant", "user"]


async def test_a_conversation_grows_by_naming_the_last_response(memory: StoredContext) -> None:
    previous: str | None = None
    for number in range(4):
        request = ask(f"req_{number}", input=f"q{number}", previous_response_id=previous)
        await memory.recall(request, tenant())
        body = {"id": f"resp_{number}", "output": [answer(f"msg_{number}", f"a{number}")]}
        await memory.keep(request, tenant(), orjson.dumps(body))
        previous = body["id"]
    assert [turn.text for turn in request.turns] == ["q0", "a0", "q1", "a1", "q2", "a2", "q3"]


@pytest.mark.parametrize(
    ("store", "storing", "kept"),
    [(None, True, True), (True, True, True), (False, True, False), (None, False, False), (True, False, False)],
)
async def test_storing_needs_the_teams_leave_and_the_clients(
    memory: StoredContext, store: bool | None, storing: bool, kept: bool
) -> None:
    request = ask(store=store)
    raw = request.raw
    await memory.recall(request, tenant(storing=storing))
    assert (request.store, request.echoed["store"]) == (kept, kept)
    assert request.raw is raw


async def test_a_team_without_storing_cannot_name_a_response(memory: StoredContext, store: Responses) -> None:
    await store.put(tenant("search"), stored())
    with pytest.raises(UnknownResponse, match="store_prompts") as caught:
        await memory.recall(ask(previous_response_id="resp_1"), tenant(storing=False))
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "previous_response_not_found", "previous_response_id")


@pytest.mark.parametrize(("team", "named"), [("strangers", "resp_1"), ("search", "resp_2")])
async def test_only_a_response_of_the_team_can_be_named(
    memory: StoredContext, store: Responses, team: str, named: str
) -> None:
    await store.put(tenant("search"), stored())
    with pytest.raises(UnknownResponse, match=f"'{named}' not found"):
        await memory.recall(ask(previous_response_id=named), tenant(team))


async def test_references_become_the_items_that_they_name(memory: StoredContext, store: Responses) -> None:
    await store.put(tenant("search"), stored())
    items: list[Any] = [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "?"}, {"id": "msg_1"}]
    request = ask(input=items)
    await memory.recall(request, tenant())
    assert request.body["input"] == [answer(), items[1], answer()]
    assert [turn.text for turn in request.turns] == ["said", "?", "said"]


@pytest.mark.parametrize("storing", [True, False])
async def test_a_reference_to_what_is_not_stored_is_refused(memory: StoredContext, storing: bool) -> None:
    items = [{"role": "user", "content": "?"}, {"type": "item_reference", "id": "msg_9"}]
    with pytest.raises(BadRequest, match="msg_9") as caught:
        await memory.recall(ask(input=items), tenant(storing=storing))
    assert caught.value.param == "input[1]"


@pytest.mark.parametrize(
    ("fields", "controls", "session"),
    [
        ({}, Controls(), ""),
        ({"prompt_cache_key": "k"}, Controls(), "k"),
        ({"prompt_cache_key": "k" * 200}, Controls(), cut_apart("k" * 200, 128)),
        ({"prompt_cache_key": 3}, Controls(), ""),
        ({"prompt_cache_key": "k", "previous_response_id": "resp_1"}, Controls(), "s"),
        ({"previous_response_id": "resp_1"}, Controls(session="mine"), "mine"),
    ],
)
async def test_a_conversation_is_a_session(
    memory: StoredContext, store: Responses, fields: dict[str, Any], controls: Controls, session: str
) -> None:
    await store.put(tenant("search"), stored(session="s"))
    request = ask(controls=controls, **fields)
    await memory.recall(request, tenant())
    assert request.controls.session == session


async def test_a_conversation_is_known_under_its_first_response(memory: StoredContext, store: Responses) -> None:
    request = ask()
    await memory.recall(request, tenant())
    await memory.keep(request, tenant(), orjson.dumps({"id": "resp_a", "output": []}))
    found = await store.find(tenant("search").viewer, "resp_a")
    assert found is not None
    assert found.session == "resp_a"
    assert found.body["store"] is True


@pytest.mark.parametrize("said", [None, b"", b"[]", b'{"output": []}', b'{"id": "resp_x"}'])
async def test_what_is_not_whole_is_not_kept(memory: StoredContext, store: Responses, said: bytes | None) -> None:
    request = ask()
    await memory.recall(request, tenant())
    await memory.keep(request, tenant(), said)
    assert await store.find(tenant("search").viewer, "resp_x") is None


async def test_a_database_that_is_away_is_told_before_and_only_logged_afterwards(
    memory: StoredContext, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(responses.drop, database.engine)
    with pytest.raises(Overloaded):
        await memory.recall(ask(previous_response_id="resp_1"), tenant())
    await memory.keep(ask(), tenant(), orjson.dumps({"id": "resp_a", "output": []}))
    assert "was not stored" in caplog.text
