"""Equal requests at one time, through a whole pipeline: one call, one bill, and nobody suffers from another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.api.server.caller import HangUp
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Tenant
from gateway.errors import AllBackendsFailed, DeadlineExceeded, StreamBroken
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import INPUT, OUTPUT, InProcessGateway, open_gateway, record_of, tenant
from tests.fakes.provider import Fail, Reply
from tests.support.pieces import with_ending
from tests.support.requests import small_request
from tests.support.waiting import until

SLOW = Reply(tokens=20, drip_s=0.01)
EXACT: dict[str, Any] = {"cache": {"semantic": {"enabled": False}}}


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path) as opened:
        yield opened


class Client:
    """One who asks, with a record and a pace of its own."""

    def __init__(
        self,
        gateway: InProcessGateway,
        request: CompletionRequest | None = None,
        who: Tenant | None = None,
        within_s: float = 5.0,
    ) -> None:
        self.gateway, self.request = gateway, request or small_request(stream=True)
        self.record = record_of(self.request, who or tenant(**EXACT))
        self.within_s = within_s
        self.pieces: list[bytes] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.task: asyncio.Task[bytes] | None = None

    async def read(self) -> bytes:
        deadline = asyncio.get_running_loop().time() + self.within_s
        serving = self.gateway.pipeline.serve(self.request, self.record.tenant, self.record, deadline)
        async with await serving as reply:
            if self.leave.happened:
                raise asyncio.CancelledError
            async for piece in with_ending(reply):
                self.pieces.append(piece)
                await self.may_read.wait()
        return b"".join(self.pieces)

    def begin(self, tasks: Tasks) -> Client:
        self.task = tasks.spawn(self.read(), "client")
        self.leave = HangUp(self.task, self.record)
        return self

    @property
    def over(self) -> bool:
        return self.task is not None and self.task.done()

    async def end(self) -> bytes:
        assert self.task is not None
        return await self.task


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    owned = Tasks()
    yield owned
    await owned.aclose()


async def nothing_is_left(gateway: InProcessGateway) -> None:
    await gateway.provider.settled()
    await until(gateway.quiet)
    stats = gateway.pipeline.cache.stats()
    assert (stats["under_way"], stats["under_way_bytes"]) == (0, 0)


def bill(row: dict[str, Any]) -> int:
    return int(row["input_tokens"]) * INPUT + int(row["output_tokens"]) * OUTPUT


@pytest.mark.parametrize("stream", [True, False])
async def test_fifty_who_ask_the_same_at_once_get_one_answer_that_one_of_them_pays(
    gateway: InProcessGateway, tasks: Tasks, stream: bool
) -> None:
    gateway.provider.script(Reply(tokens=20, drip_s=0.005, delay_s=0.05))
    clients = [Client(gateway, small_request(stream=stream)).begin(tasks) for _ in range(50)]
    answers = {await client.end() for client in clients}
    assert len(answers) == len(gateway.provider.exchanges) == 1
    assert answers.pop().endswith(b"data: [DONE]\n\n" if stream else b"}")
    assert [client.record.cache for client in clients] == ["miss"] + ["join"] * 49
    rows = await gateway.rows()
    paid = [row for row in rows if row["attempt"]]
    shared = [row for row in rows if not row["attempt"]]
    assert (len(paid), len(shared)) == (1, 49)
    assert paid[0]["cost_pico"] == bill(paid[0]) > 0
    told = {(row["cache"], row["cost_pico"], row["saved_pico"], row["output_tokens"], row["outcome"]) for row in shared}
    assert told == {("join", 0, paid[0]["cost_pico"], paid[0]["output_tokens"], "ok")}
    assert gateway.emitted == 50
    await gateway.stored()
    await nothing_is_left(gateway)


async def test_who_comes_late_hears_all_of_it_from_the_beginning_and_then_goes_along(
    gateway: InProcessGateway, tasks: Tasks
) -> None:
    gateway.provider.script(SLOW)
    first = Client(gateway).begin(tasks)
    await until(lambda: len(first.pieces) > 8)
    late = Client(gateway).begin(tasks)
    await until(lambda: len(late.pieces) > 6)
    assert not late.over
    assert not first.over
    assert await late.end() == await first.end()
    assert len(late.pieces) == len(first.pieces)  # the chunks that there were, and not all in one
    assert len(gateway.provider.exchanges) == 1


async def test_whole_answers_and_streams_share_one_call(gateway: InProcessGateway, tasks: Tasks) -> None:
    gateway.provider.script(SLOW)
    stream = Client(gateway).begin(tasks)
    await until(lambda: stream.pieces)
    with_usage = Client(gateway, small_request(stream=True, stream_options={"include_usage": True})).begin(tasks)
    plain = Client(gateway, small_request()).begin(tasks)
    said = await stream.end()
    body = orjson.loads(await plain.end())
    assert len(gateway.provider.exchanges) == 1
    assert body["usage"]["completion_tokens"] == 20
    assert f'"completion_tokens":{20}'.encode() in await with_usage.end()
    assert b'"usage":{' not in said
    assert [client.record.cache for client in (with_usage, plain)] == ["join", "join"]


@pytest.mark.parametrize(("stream", "begun"), [(True, True), (True, False), (False, False)])
async def test_who_pays_may_hang_up_and_the_others_get_the_whole_answer(
    gateway: InProcessGateway, tasks: Tasks, stream: bool, begun: bool
) -> None:
    gateway.provider.script(Reply(tokens=20, drip_s=0.005, delay_s=0.0 if begun else 0.1))
    leader = Client(gateway, small_request(stream=stream)).begin(tasks)
    await until(lambda: gateway.provider.exchanges and (leader.pieces or not begun))
    others = [Client(gateway, small_request(stream=stream)).begin(tasks) for _ in range(3)]
    await asyncio.sleep(0.01)
    leader.leave()
    answers = [await client.end() for client in others]
    assert len(set(answers)) == len(gateway.provider.exchanges) == 1
    assert answers[0].endswith(b"data: [DONE]\n\n" if stream else b"}")
    await nothing_is_left(gateway)
    rows = await gateway.rows()
    paid = next(row for row in rows if row["attempt"])
    assert (paid["request_id"], paid["outcome"], paid["cost_pico"]) == (leader.record.request_id, "ok", bill(paid))
    assert [row["saved_pico"] for row in rows if not row["attempt"]] == [paid["cost_pico"]] * 3
    assert (leader.record.status, leader.record.error) == (499, "client_closed_request")
    assert gateway.emitted == 4


async def test_one_who_joined_may_hang_up_too(gateway: InProcessGateway, tasks: Tasks) -> None:
    gateway.provider.script(SLOW)
    leader = Client(gateway).begin(tasks)
    await until(lambda: leader.pieces)
    other = Client(gateway).begin(tasks)
    await until(lambda: other.pieces)
    other.leave()
    assert (await leader.end()).endswith(b"[DONE]\n\n")
    rows = {row["attempt"]: row for row in await gateway.rows()}
    assert (rows[1]["outcome"], rows[0]["outcome"], rows[0]["cost_pico"]) == ("ok", "interrupted", 0)
    await nothing_is_left(gateway)


async def test_when_the_last_one_leaves_the_backend_is_hung_up_on_and_billed_once(
    gateway: InProcessGateway, tasks: Tasks
) -> None:
    gateway.provider.script(Reply(tokens=400, drip_s=0.01))
    clients = [Client(gateway).begin(tasks) for _ in range(3)]
    await until(lambda: all(client.pieces for client in clients))
    for client in clients:
        client.leave()
    await nothing_is_left(gateway)
    assert gateway.provider.last.hung_up
    rows = await gateway.rows()
    paid = [row for row in rows if row["attempt"]]
    assert [(row["outcome"], row["cost_pico"] > 0) for row in paid] == [("interrupted", True)]
    assert len(rows) == 3


@pytest.mark.parametrize("last", [0, 1])
async def test_when_all_have_left_a_plain_answer_the_backend_is_hung_up_on(
    gateway: InProcessGateway, tasks: Tasks, last: int
) -> None:
    gateway.provider.script(Reply(tokens=5, delay_s=30.0))
    clients = [Client(gateway, small_request()).begin(tasks) for _ in range(2)]
    await until(lambda: gateway.provider.exchanges)
    clients[1 - last].leave()
    await asyncio.sleep(0.02)
    assert not gateway.provider.last.hung_up
    clients[last].leave()
    await nothing_is_left(gateway)
    assert gateway.provider.last.hung_up
    assert sorted(row["outcome"] for row in await gateway.rows() if row["attempt"]) == ["interrupted"]
    assert {client.record.status for client in clients} == {499}


async def test_who_asks_after_a_plain_answer_ran_out_of_time_buys_another(
    gateway: InProcessGateway, tasks: Tasks
) -> None:
    gateway.provider.script(Reply(tokens=5, delay_s=30.0), Reply(tokens=5))
    leader = Client(gateway, small_request(), within_s=0.3).begin(tasks)
    await until(lambda: gateway.provider.exchanges)
    other = Client(gateway, small_request(), within_s=0.5).begin(tasks)
    with pytest.raises(DeadlineExceeded):
        await leader.end()
    assert orjson.loads(await other.end())["choices"]
    assert [row["outcome"] for row in await gateway.rows() if row["attempt"]] == ["interrupted", "ok"]
    await nothing_is_left(gateway)


async def test_of_an_answer_that_fails_before_its_first_byte_those_who_joined_hear_nothing(
    gateway: InProcessGateway, tasks: Tasks
) -> None:
    gateway.provider.script(Fail(500, delay_s=0.05), Fail(500), Reply(tokens=5))
    clients = [Client(gateway).begin(tasks) for _ in range(10)]
    done = await asyncio.gather(*(client.end() for client in clients), return_exceptions=True)
    failed = [each for each in done if isinstance(each, BaseException)]
    assert [type(each) for each in failed] == [AllBackendsFailed]
    assert len({each for each in done if isinstance(each, bytes)}) == 1
    assert len(gateway.provider.exchanges) == 3
    assert sorted(client.record.cache for client in clients) == ["join"] * 8 + ["miss"] * 2
    rows = await gateway.rows()
    assert sum(row["cost_pico"] for row in rows) == bill(next(row for row in rows if row["outcome"] == "ok"))
    await nothing_is_left(gateway)


async def test_failures_are_waited_for_twice_at_most(gateway: InProcessGateway, tasks: Tasks) -> None:
    """Ten who wait for each other's failures in a row would wait ten times as long as one."""
    gateway.provider.default = Fail(400, delay_s=0.02)
    clients = [Client(gateway).begin(tasks) for _ in range(10)]
    done = await asyncio.gather(*(client.end() for client in clients), return_exceptions=True)
    assert {getattr(each, "status", None) for each in done} == {400}
    assert len(gateway.provider.exchanges) == 10
    assert gateway.pipeline.cache.stats()["joined_in_vain"] == 9 + 8
    gateway.provider.default = Reply()
    await nothing_is_left(gateway)


async def test_a_stream_that_breaks_midway_is_an_error_for_who_has_heard_of_it_and_none_for_the_others(
    gateway: InProcessGateway, tasks: Tasks
) -> None:
    gateway.provider.script(Reply(tokens=20, drip_s=0.01, cut="rst", after=9), Reply(tokens=5))
    leader = Client(gateway).begin(tasks)
    await until(lambda: leader.pieces)
    heard, waits = Client(gateway).begin(tasks), Client(gateway, small_request()).begin(tasks)
    with pytest.raises(StreamBroken):
        await leader.end()
    with pytest.raises(StreamBroken, match="shared"):
        await heard.end()
    assert heard.pieces
    assert orjson.loads(await waits.end())["choices"]
    assert (waits.record.cache, len(gateway.provider.exchanges)) == ("miss", 2)
    await nothing_is_left(gateway)


async def test_a_slow_reader_holds_nobody_back(gateway: InProcessGateway, tasks: Tasks) -> None:
    gateway.provider.script(SLOW)
    clients = [Client(gateway).begin(tasks) for _ in range(3)]
    await until(lambda: all(client.pieces for client in clients))
    for slow in clients[:2]:
        slow.may_read.clear()
    whole = await clients[2].end()
    for slow in clients[:2]:
        assert len(slow.pieces) < 20
        slow.may_read.set()
        assert await slow.end() == whole
    await nothing_is_left(gateway)


async def test_who_lags_too_far_behind_is_cut_off_and_takes_no_memory(
    gateway: InProcessGateway, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cache.coalescing.registry.KEPT_BYTES", 4000)
    monkeypatch.setattr("gateway.cache.coalescing.registry.LEAST_KEPT_BYTES", 4000)
    monkeypatch.setattr("gateway.cache.coalescing.shared_call.LEAST_KEPT_BYTES", 4000)
    gateway.provider.script(Reply(tokens=100, drip_s=0.002))
    leader = Client(gateway).begin(tasks)
    slow = Client(gateway).begin(tasks)
    await until(lambda: slow.pieces)
    slow.may_read.clear()
    assert (await leader.end()).endswith(b"[DONE]\n\n")
    slow.may_read.set()
    with pytest.raises(StreamBroken, match="too slowly"):
        await slow.end()
    await nothing_is_left(gateway)


async def test_one_that_reads_alone_is_waited_for(gateway: InProcessGateway, tasks: Tasks) -> None:
    """Its pace is the backend's: nothing piles up in between."""
    gateway.provider.script(Reply(tokens=20_000))
    alone = Client(gateway)
    alone.may_read.clear()
    alone.begin(tasks)
    await until(lambda: alone.pieces)
    await asyncio.sleep(0.05)
    assert int(gateway.pipeline.cache.stats()["under_way_bytes"]) < 500_000  # of three million
    alone.may_read.set()
    assert (await alone.end()).endswith(b"[DONE]\n\n")


async def test_keys_of_a_team_share_and_other_teams_do_not(gateway: InProcessGateway, tasks: Tasks) -> None:
    gateway.provider.default = SLOW
    whose = [tenant("k1", **EXACT), tenant("k2", **EXACT), tenant("k3", "other", **EXACT)]
    clients = [Client(gateway, who=who).begin(tasks) for who in whose]
    for client in clients:
        await client.end()
    assert [client.record.cache for client in clients] == ["miss", "join", "miss"]
    assert len(gateway.provider.exchanges) == 2


async def test_an_answer_that_the_budget_cut_short_is_not_kept(gateway: InProcessGateway) -> None:
    """Near its end the backend is asked for less than the client did: nobody else deserves such an answer."""
    gateway.provider.default = Reply(tokens=900)
    await gateway.read(small_request("mine", max_tokens=2))
    assert (gateway.record.finish, gateway.pipeline.cache.stats()["entries"]) == ("length", 1)
    who = tenant(budget={"limit_usd": str(600 * OUTPUT / 1e12), "window": "day"}, **EXACT)
    await gateway.read(small_request("the budget's"), who)
    assert 500 <= gateway.provider.last.tokens_sent < 600
    assert (gateway.record.finish, gateway.pipeline.cache.stats()["entries"]) == ("length", 1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "limit",
    [
        {"max_usd_per_request": str(600 * OUTPUT / 1e12)},
        {"budget": [{"limit_usd": str(600 * OUTPUT / 1e12), "on_exhausted": "truncate"}]},
    ],
    ids=["per request", "budget"],
)
async def test_a_limit_of_one_team_cuts_no_answer_of_another(
    gateway: InProcessGateway, tasks: Tasks, limit: dict[str, Any], stream: bool
) -> None:
    gateway.provider.default = Reply(tokens=900, delay_s=0.1)
    shared = {"cache": {**EXACT["cache"], "scope": "organisation"}}
    limited = tenant("k1", "limited", **limit, **shared)
    clients = [
        Client(gateway, small_request(stream=stream), who).begin(tasks)
        for who in (limited, tenant("k2", "other", **shared))
    ]
    for client in clients:
        await client.end()
    assert [client.record.cache for client in clients] == ["miss", "miss"]
    assert [client.record.finish for client in clients] == ["length", "stop"]


async def test_who_needs_another_form_does_not_wait_for_the_end_of_an_answer_that_a_limit_cuts(
    gateway: InProcessGateway, tasks: Tasks
) -> None:
    """Nor does the wait keep the call going when its client has left."""
    shared = {"cache": {**EXACT["cache"], "scope": "organisation"}}
    limited = tenant("k1", "limited", max_usd_per_request=str(600 * OUTPUT / 1e12), **shared)
    gateway.provider.script(Reply(tokens=900, delay_s=0.1, drip_s=0.05), Reply(tokens=20))
    first = Client(gateway, small_request(stream=True), limited, within_s=60).begin(tasks)
    await until(lambda: bool(gateway.provider.exchanges))
    other = Client(gateway, small_request(), tenant("k2", "other", **shared), within_s=60).begin(tasks)
    await other.end()
    assert (other.record.cache, other.record.finish, first.over) == ("miss", "stop", False)
    first.leave()
    with contextlib.suppress(asyncio.CancelledError):
        await first.end()
    assert gateway.provider.exchanges[0].tokens_sent < 500
    await nothing_is_left(gateway)


async def test_a_policy_may_keep_requests_apart(gateway: InProcessGateway, tasks: Tasks) -> None:
    who = tenant(cache={"join": "none"})
    clients = [Client(gateway, who=who).begin(tasks) for _ in range(3)]
    for client in clients:
        await client.end()
    assert len(gateway.provider.exchanges) == 3


async def test_a_refresh_buys_anew_and_later_ones_follow_it(gateway: InProcessGateway, tasks: Tasks) -> None:
    gateway.provider.default = SLOW
    old = Client(gateway).begin(tasks)
    await until(lambda: old.pieces)
    new = Client(gateway, small_request(stream=True, controls=Controls(cache="refresh"))).begin(tasks)
    await until(lambda: new.pieces)
    late = Client(gateway, small_request(stream=True, controls=Controls(cache="only"))).begin(tasks)
    said = [await client.end() for client in (old, new, late)]
    assert said[0] != said[1] == said[2]
    assert (late.record.cache, len(gateway.provider.exchanges)) == ("join", 2)


async def test_nobody_with_time_waits_for_a_leader_without(gateway: InProcessGateway, tasks: Tasks) -> None:
    gateway.provider.default = Reply(tokens=40, drip_s=0.01)
    hurried = Client(gateway, within_s=0.15).begin(tasks)
    await until(lambda: hurried.pieces)
    patient, also = Client(gateway).begin(tasks), Client(gateway, within_s=0.1).begin(tasks)
    with pytest.raises(DeadlineExceeded):
        await hurried.end()
    with pytest.raises(DeadlineExceeded):
        await also.end()
    assert (await patient.end()).endswith(b"[DONE]\n\n")
    assert [client.record.cache for client in (hurried, patient, also)] == ["miss", "miss", "join"]
    await nothing_is_left(gateway)


async def test_without_the_state_server_equal_requests_are_joined_all_the_same(
    gateway: InProcessGateway, state: State, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.provider.script(SLOW)
    monkeypatch.setattr(type(state), "healthy", property(lambda _: False))
    clients = [Client(gateway).begin(tasks) for _ in range(3)]
    assert len({await client.end() for client in clients}) == len(gateway.provider.exchanges) == 1


async def test_where_a_policy_asks_for_it_another_gateway_on_the_same_state_server_waits_for_the_answer(
    gateway: InProcessGateway, state: State, database: Database, tmp_path: Path, tasks: Tasks
) -> None:
    who = tenant(cache={"join": "everywhere", "semantic": {"enabled": False}})
    async with open_gateway(state, database, tmp_path / "other") as other:
        for each in (gateway, other):
            each.provider.default = SLOW
        here = [Client(gateway, who=who).begin(tasks) for _ in range(3)]
        await until(lambda: all(client.pieces for client in here))
        there = [Client(other, who=who).begin(tasks) for _ in range(3)]
        for client in here:
            await client.end()
        for client in there:
            assert b"t19" in await client.end()
        assert (len(gateway.provider.exchanges), len(other.provider.exchanges)) == (1, 0)
        assert [client.record.cache for client in there] == ["exact"] * 3
        await nothing_is_left(gateway)
    assert await state.call("KEYS", state.key("join", "*")) == []
