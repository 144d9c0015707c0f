"""A fitted plan's own strategy, asked of real backends over the wire, down to the ledger's rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from gateway.domain.routing.route import Route
from gateway.routing.fit.frontier import plain
from gateway.routing.fit.search import Evidence
from gateway.routing.strategy.plan import Plan
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.backends.test_cascade_money import Decided, spent
from tests.fakes.gateway import InProcessGateway, backend, open_gateway, tenant
from tests.fakes.provider import Fail, Reply
from tests.routing.recorded import POOL, outcomes, rows
from tests.support.requests import small_request

STANDS_FOR = {"tiny": "small", "mini": "second", "midi": "third"}
"""Model of the plan → the backend that has it."""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Of three models whose agreement proves an answer right."""
    pool = {model: POOL[model] for model in STANDS_FOR}
    found = outcomes(tmp_path_factory.mktemp("recorded"), rows(400), pool)
    frontier = plain(found.models, Evidence.of(found, np.ones((len(found), 1))))
    return Plan(found.models, frontier.strategies, tuple(each.strategy for each in frontier.singles))


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path, plan: Plan) -> AsyncIterator[InProcessGateway]:
    """Whose router follows the plan's best strategy."""
    start = plan.begin("What is 3 plus 4?", 1.0, "anybody", STANDS_FOR)
    assert start is not None
    assert start.strategy.kind == "cascade"
    async with open_gateway(
        state, database, tmp_path, more=lambda provider: tuple(backend(provider, name) for name in ("second", "third"))
    ) as opened:
        backends = opened.fleet.backends
        route = Route(backends, "plan", reference=backends[-1], asking=start.asking, strategy=start.strategy.kind)
        opened.pipeline.router = Decided(route)
        yield opened


async def served(gateway: InProcessGateway) -> tuple[str, list[dict[str, Any]]]:
    data = await gateway.read(small_request(), tenant(cache={"enabled": False}))
    return str(orjson.loads(data)["choices"][0]["message"]["content"]), await gateway.rows()


def attempts_of(found: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(row["backend"], row["attempt"], row["outcome"]) for row in found]


async def test_two_cheap_models_that_agree_are_enough(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(text="The answer is 7."), Reply(text="3 + 4 = 7"))
    text, found = await served(gateway)
    assert text == "3 + 4 = 7"  # the better of the two
    assert attempts_of(found) == [("small", 1, "escalated"), ("second", 2, "ok")]
    assert [row["cost_pico"] for row in found] == [spent(row) for row in found]
    assert all(row["input_tokens"] and row["output_tokens"] for row in found)


async def test_where_they_disagree_the_third_decides(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(text="7"), Reply(text="It is 8."), Reply(text="So it must be 7."))
    text, found = await served(gateway)
    assert text == "So it must be 7."
    assert attempts_of(found) == [("small", 1, "escalated"), ("second", 2, "escalated"), ("third", 3, "ok")]
    assert [row["cost_pico"] for row in found] == [spent(row) for row in found]


async def test_where_all_disagree_the_best_models_answer_is_given(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(text="7"), Reply(text="8"), Reply(text="9"))
    text, found = await served(gateway)
    assert text == "9"
    assert attempts_of(found) == [("small", 1, "escalated"), ("second", 2, "escalated"), ("third", 3, "ok")]


async def test_when_the_first_fails_the_best_model_answers(gateway: InProcessGateway) -> None:
    gateway.provider.script(Fail(500), Fail(500), Reply(text="8"))
    text, found = await served(gateway)
    assert text == "8"
    assert attempts_of(found) == [("small", 1, "failed"), ("small", 2, "failed"), ("third", 3, "ok")]
    assert [row["cost_pico"] for row in found] == [0, 0, spent(found[2])]
