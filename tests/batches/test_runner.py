from __future__ import annotations

import asyncio
import itertools
from typing import Any

import orjson
import pytest

from gateway.admission.load_shedding import LoadShedder
from gateway.batches.run import LINES, TRIES
from gateway.domain.tenant import Viewer
from gateway.errors import (
    AllBackendsFailed,
    BackendFailed,
    BackendRefused,
    BadRequest,
    BudgetExhausted,
    LimitExceeded,
)
from gateway.policy.keys import revoke
from tests.batches.conftest import URL, Host, jsonl, line
from tests.support.waiting import until


async def until_asked(host: Host, *questions: str) -> None:
    await until(lambda: set(questions) <= set(host.pipeline.asked))


async def test_every_line_has_one_result(host: Host) -> None:
    tenant = await host.tenant()
    host.pipeline.script["q7"] = [BackendRefused("no such thing", status=422)]
    batch = await host.batch(tenant, *(line(f"q{number}") for number in range(200)))
    await host.run()
    ended = await host.until(batch)
    assert (ended.status, ended.total, ended.completed, ended.failed) == ("completed", 200, 199, 1)
    assert ended.started_at
    output = await host.results(ended, ended.output_file_id)
    errors = await host.results(ended, ended.error_file_id)
    assert output.keys() | errors.keys() == {f"q{number}" for number in range(200)}
    assert output["q3"]["response"]["body"] == {"said": "q3", "team": "search"}
    assert errors["q7"]["response"]["status_code"] == 422
    assert host.pipeline.most == LINES
    record = host.pipeline.records[0]
    assert record.tags == {"batch": batch.id}
    assert record.tenant is tenant


async def test_a_batch_passes_all_its_stages(host: Host) -> None:
    gate = asyncio.Event()
    host.pipeline.script["b"] = [gate]
    batch = await host.batch(await host.tenant(), line("a"), line("b"))
    assert (batch.status, batch.total, batch.completed) == ("validating", 2, 0)
    await host.run()
    half = await host.until(batch, lambda batch: batch.completed == 1)
    assert half.status == "in_progress"
    gate.set()
    ended = await host.until(batch)
    assert (ended.status, ended.completed, ended.model) == ("completed", 2, "auto")
    assert ended.started_at
    assert ended.finalizing_at
    assert ended.finished_at
    assert ended.created_at <= ended.started_at <= ended.finalizing_at <= ended.finished_at


async def test_a_batch_that_was_being_finalized_is_finished_by_the_next_runner(host: Host) -> None:
    batch = await host.batch(await host.tenant(), line("a"))
    assert await host.jobs.begin(batch)
    await host.jobs.finalize(batch, (1, 0))
    with pytest.raises(BadRequest, match="finalizing"):
        await host.jobs.cancel(Viewer(batch.team), batch.id)
    await host.run()
    assert (await host.until(batch)).status == "completed"


async def test_lines_are_sent_as_their_client_wrote_them_and_with_its_wishes(host: Host) -> None:
    messages = '[{"role":"user","content":"\\u00e9"}]'
    body = f'{{"model":"auto","temperature":1.0,"big":12345678901234567890123,"messages":{messages}}}'
    data = f'{{"body": {body}, "custom_id":"a","method":"POST","url":"{URL}"}}'.encode()
    file = await host.upload(tenant := await host.tenant(), data)
    asked = {"input_file_id": file.id, "endpoint": URL, "completion_window": "24h"}
    wishes = {
        "x-thriftgate-tags": "night=7",
        "x-thriftgate-cache": "bypass",
        "x-thriftgate-deadline": "1",
        "?": "beta=true",
    }
    batch = await host.jobs.create(tenant, asked, wishes)
    await host.run()
    await host.until(batch)
    (request,) = host.pipeline.requests
    assert request.raw == body.encode()
    assert request.query == b"beta=true"
    assert (request.controls.priority, request.controls.cache, request.controls.deadline_s) == ("batch", "bypass", None)
    assert host.pipeline.records[0].tags == {"night": "7", "batch": batch.id}


async def test_lines_may_refer_to_stored_responses_and_be_stored(host: Host) -> None:
    tenant, url = await host.tenant(), "/v1/responses"
    bodies: list[Any] = [{"model": "auto", "input": "kept"}, {"model": "auto", "input": "not kept", "store": False}]
    lines = [line(body["input"], url=url, body=body) for body in bodies]
    file = await host.upload(tenant, jsonl(*lines))
    asked = {"input_file_id": file.id, "endpoint": url, "completion_window": "24h"}
    batch = await host.jobs.create(tenant, asked)
    await host.run()
    assert (await host.until(batch)).completed == 2
    for record in host.pipeline.records:
        assert record.tags == {"recalled": "search", "batch": batch.id}
    assert orjson.loads(host.memory.kept["search"] or b"")["said"] == "kept"


async def test_lines_that_begin_alike_are_sent_one_after_the_other(host: Host) -> None:
    books = {name: f"The book of {name}. " * 300 for name in "xyz"}
    lines = [line(f"{name}{number}", f"{books[name]}{name}{number}") for number in range(8) for name in books]
    batch = await host.batch(await host.tenant(), *lines)
    await host.run()
    ended = await host.until(batch)
    sent = [question[-2] for question in host.pipeline.asked]
    # The first of each goes ahead, and while it is under way the others of its kind are let past.
    assert set(sent[:3]) == set(books)
    assert sum(one != after for one, after in itertools.pairwise(sent[3:])) <= 4
    assert len(await host.results(ended, ended.output_file_id)) == 24


async def test_a_batch_gives_way_to_interactive_requests(host: Host) -> None:
    host.overload = LoadShedder(concurrent=20, lag_s=1.0)
    for number in range(19):
        host.overload.enter(f"team{number}", batch=False)
    batch = await host.batch(await host.tenant(), *(line(f"q{number}") for number in range(8)))
    await host.run()
    await until_asked(host, "q0")
    ended = await host.until(batch)
    assert host.pipeline.most == 1  # the twentieth that is a batch's own
    assert ended.completed == 8


async def test_a_batch_without_failures_has_no_error_file(host: Host) -> None:
    batch = await host.batch(await host.tenant(), line("a"))
    await host.run()
    ended = await host.until(batch)
    assert ended.error_file_id is None
    errors = host.files.path(batch.result_id("error"))
    await until(lambda: asyncio.to_thread(lambda: not errors.exists()))


async def test_a_restart_sends_no_line_again_that_has_a_result(host: Host) -> None:
    never = asyncio.Event()
    host.pipeline.script |= {"c": [never], "d": [never]}
    batch = await host.batch(await host.tenant(), *(line(name) for name in "abcdefgh"))
    first = await host.run()
    await until_asked(host, "c", "d")
    await host.until(batch, lambda batch: batch.completed >= 2)
    for task in first._tasks._running:  # as a kill: nothing gets to say goodbye
        task.cancel()
    await first.aclose()
    finished = set(host.pipeline.answered)
    before = len(host.pipeline.asked)
    assert {"a", "b"} <= finished
    assert (await host.jobs.get(Viewer(batch.team), batch.id)).status == "in_progress"
    await host.run()
    ended = await host.until(batch)
    assert sorted(host.pipeline.asked[before:]) == sorted(set("abcdefgh") - finished)
    assert (ended.status, ended.completed) == ("completed", 8)
    assert set(await host.results(ended, ended.output_file_id)) == set("abcdefgh")


async def test_closing_lets_lines_in_flight_end(host: Host) -> None:
    gate = asyncio.Event()
    names = [f"q{number}" for number in range(LINES + 3)]
    host.pipeline.script |= {name: [gate] for name in names}
    batch = await host.batch(await host.tenant(), *map(line, names))
    runner = await host.run()
    await until_asked(host, *names[:LINES])
    asyncio.get_running_loop().call_later(0.05, gate.set)
    await runner.aclose()
    assert host.pipeline.asked == names[:LINES]
    await host.run()
    assert (await host.until(batch)).completed == len(names)
    assert len(host.pipeline.asked) == len(names)


async def test_one_runner_at_a_time_and_the_next_takes_over(host: Host) -> None:
    two = [await host.run(), await host.run()]
    batch = await host.batch(await host.tenant(), line("a"))
    await host.until(batch)
    waiting, running = sorted(two, key=lambda runner: int(runner.stats()["runner"]))
    assert (running.stats()["runner"], waiting.stats()["runner"]) == (1, 0)
    await running.aclose()
    await host.until(await host.batch(await host.tenant(), line("b")))
    assert waiting.stats()["runner"] == 1
    assert host.pipeline.asked == ["a", "b"]


async def test_a_cancelled_batch_keeps_what_it_has_and_tells_the_rest(host: Host) -> None:
    gate = asyncio.Event()
    host.pipeline.script |= {f"q{number}": [gate] for number in range(2, 20)}
    batch = await host.batch(await host.tenant(), *(line(f"q{number}") for number in range(20)))
    await host.run()
    await until_asked(host, "q5")
    assert (await host.jobs.cancel(Viewer(batch.team), batch.id)).status == "cancelling"
    await asyncio.sleep(0.05)
    gate.set()
    ended = await host.until(batch)
    assert ended.status == "cancelled"
    assert ended.completed + ended.failed == ended.total == 20
    output = await host.results(ended, ended.output_file_id)
    errors = await host.results(ended, ended.error_file_id)
    assert {"q0", "q5"} <= output.keys()
    assert output.keys() == set(host.pipeline.asked)
    assert errors["q19"]["error"]["code"] == "batch_cancelled"


async def test_a_batch_whose_day_is_over_expires(host: Host) -> None:
    host.clock.ahead = 24 * 3600 + 1
    batch = await host.batch(await host.tenant(), line("a"), line("b"))
    await host.run()
    ended = await host.until(batch)
    assert (ended.status, ended.completed, ended.failed) == ("expired", 0, 2)
    errors = await host.results(ended, ended.error_file_id)
    assert errors["a"]["error"]["code"] == "batch_expired"
    assert (host.pipeline.asked, ended.unsent) == ([], 2)


async def test_a_batch_whose_file_is_elsewhere_is_left_alone_until_it_is_long_over(host: Host) -> None:
    batch = await host.batch(await host.tenant(), line("a"))
    await asyncio.to_thread(host.files.path(batch.input_file_id).unlink)
    host.clock.ahead = 24 * 3600 + 60
    await host.run()
    await asyncio.sleep(0.1)
    assert (await host.jobs.get(Viewer(batch.team), batch.id)).status == "validating"
    host.clock.ahead += 3600
    assert (await host.until(batch)).status == "expired"


async def test_a_limit_is_waited_for_and_a_broken_backend_only_for_so_long(host: Host) -> None:
    down = AllBackendsFailed([BackendFailed("down")])
    host.pipeline.script |= {
        "limited": [LimitExceeded("slower", retry_after_s=0.001) for _ in range(TRIES * 3)],
        "resting": [AllBackendsFailed([]) for _ in range(1)],
        "flaky": [down, down],
        "down": [down] * 100,
        "too large": [LimitExceeded("larger than the limit") for _ in range(100)],
        "poor": [BudgetExhausted("spent")],
        "odd": [ZeroDivisionError()],
    }
    batch = await host.batch(await host.tenant(), *map(line, list(host.pipeline.script)))
    await host.run()
    ended = await host.until(batch)
    assert set(await host.results(ended, ended.output_file_id)) == {"limited", "resting", "flaky"}
    errors = await host.results(ended, ended.error_file_id)
    assert {name: each["response"]["status_code"] for name, each in errors.items()} == {
        "down": 502, "too large": 429, "poor": 429, "odd": 500,
    }  # fmt: skip
    assert host.pipeline.asked.count("down") == TRIES


async def test_a_revoked_key_sends_nothing_more(host: Host) -> None:
    tenant = await host.tenant()
    batch = await host.batch(tenant, line("a"))
    await asyncio.to_thread(revoke, host.database, tenant.key.id)
    await host.ring.refresh()
    await host.run()
    ended = await host.until(batch)
    errors = await host.results(ended, ended.error_file_id)
    assert errors["a"]["response"]["status_code"] == 401
    assert host.pipeline.asked == []


async def test_one_teams_long_batch_makes_no_other_team_wait(host: Host) -> None:
    gate = asyncio.Event()
    host.pipeline.script["slow"] = [gate]
    long = await host.batch(busy := await host.tenant(), line("slow"))
    queued = await host.batch(busy, line("queued"))
    other = await host.batch(await host.tenant("other"), line("quick"))
    await host.run()
    assert (await host.until(other)).status == "completed"
    await until_asked(host, "slow")
    assert sorted(host.pipeline.asked) == ["quick", "slow"]
    assert (await host.jobs.get(Viewer(queued.team), queued.id)).status == "validating"
    gate.set()
    await host.until(long)
    await host.until(queued)


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
async def test_a_line_that_waits_to_be_tried_again_does_not_hold_up_the_end(host: Host, ending: str) -> None:
    host.pipeline.script["a"] = [LimitExceeded("later", retry_after_s=3600)]
    batch = await host.batch(await host.tenant(), line("a"))
    await host.run()
    await until_asked(host, "a")
    if ending == "cancelled":
        await host.jobs.cancel(Viewer(batch.team), batch.id)
    else:
        host.clock.ahead = 24 * 3600
    assert (await host.until(batch)).status == ending
