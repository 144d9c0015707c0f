"""`{"cache": "wrong"}`, from the worker that hears it to the one that gave the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.cache.keys import scope
from gateway.cache.quality.counters import read
from gateway.state.sql.database import Database
from tests.cache.conftest import Worker, request, tenant
from tests.fakes.embedder import FakeEmbedder
from tests.support.waiting import until

WHO = tenant()


def found_wrong(worker: Worker) -> float:
    """What this worker's bar has learned of."""
    return sum(worker.cache._hit_checker._trust._scope(scope(WHO)).tally.wrong)


async def test_the_worker_that_gave_it_learns_whoever_hears_of_it(
    make_worker: Callable[..., Any], database: Database
) -> None:
    one, two = await make_worker(FakeEmbedder()), await make_worker(FakeEmbedder())
    two.cache.measure_in(database)
    await one.serve(request("What is the capital of Peru?"), WHO)
    await until(lambda: two.cache.stats()["entries"] == 1)
    asked = request("what's the capital of peru")
    assert (await two.ask(asked, WHO)).cache == "semantic"
    await one.cache.wrong(asked.id, "other")  # not its request
    await one.catch_up()
    await two.catch_up()
    assert found_wrong(two) == 0
    for _ in range(3):  # said again it is said once
        await one.cache.wrong(asked.id, WHO.team)
    await until(lambda: not two.cache.stats()["entries"])
    assert (found_wrong(one), found_wrong(two)) == (0, 1)
    await two.cache._hit_checker.tell(two.cache._log.append)
    await until(lambda: found_wrong(one) == 1)
    told = await database.run(read, writes=False)
    assert {team: (found.measured.hits, found.called_wrong) for team, found in told.items()} == {WHO.team: (1, 1)}
