"""The router's decisions with a past: warm prefixes, tool loops, replicas, and machines that are full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.usage import Usage
from gateway.domain.protocols import BackendState
from gateway.domain.request import CompletionRequest, Controls, Turn
from gateway.domain.routing.load import Load
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.affinity.continuity import Affinity
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from tests.routing.conftest import EASY, backend, record, request, tenant

LONG = 20_000
TOOLED = frozenset({"tools"})
TOOLS = [Turn(0, "user", EASY), Turn(1, "assistant", "", calls=("c",)), Turn(2, "tool", "12", results=("c",))]
A_PRICE = PriceEntry(input=Decimal(1), cached_input=Decimal("0.1"), output=Decimal(4))
B_PRICE = PriceEntry(input=Decimal("0.8"), cached_input=Decimal("0.08"), output=Decimal("3.2"))
ONE = backend("one", "hosted", model="same", kind="openai").model_copy(
    update={"price": A_PRICE, "capabilities": TOOLED}
)
OTHER = backend("other", "hosted", model="same", kind="openai").model_copy(
    update={"price": B_PRICE, "capabilities": TOOLED}
)
HOUR = PriceEntry(machine_hour_usd=Decimal(2), tokens_per_second=1000)


def machine(name: str, **more: Any) -> Backend:
    return backend(name, "large", model="qwen", **more).model_copy(update={"price": HOUR})


@dataclass
class Fleet:
    """Everybody is well; loads and waits as the test says."""

    states: dict[str, BackendState] = field(default_factory=dict)

    def state(self, backend: Backend) -> BackendState:
        return self.states.get(backend.name, BackendState(True))

    def busy(self, name: str, load: Load, wait_s: float = 0.0) -> None:
        self.states[name] = BackendState(True, load=load, wait_s=wait_s)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


Build = Callable[..., Router]


@pytest.fixture
def build(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> Build:
    def build(*backends: Backend, **more: Any) -> Router:
        continuity = Affinity(backends, fleet, **more)
        return Router(lambda: grader, catalogue, fleet, backends, continuity=continuity)

    return build


def decide(router: Router, asked: CompletionRequest, tokens: int = 50, **policy: Any) -> Route:
    return router.decide(asked, tenant(**policy), ContextEstimate(tokens, tokens))


def answered(router: Router, asked: CompletionRequest, route: Route, usage: Usage, *, finish: str = "stop") -> None:
    done = record(asked, tenant())
    done.route, done.finish = route, finish
    attempt = done.attempt(route.backends[0])
    attempt.outcome, attempt.usage = "ok", usage
    router.learn(done)


def names(route: Route) -> list[str]:
    return [each.name for each in route.backends]


def cost(route: Route, name: str) -> int:
    found = next(one.cost_pico for one in route.considered if one.backend == name)
    assert found is not None
    return found


def test_a_warm_prefix_keeps_a_conversation_with_the_dearer_backend(build: Build) -> None:
    router = build(ONE, OTHER)
    asked = request(model="same", controls=Controls(session="s"))
    assert names(decide(router, asked, LONG)) == ["other", "one"]
    cold = cost(decide(router, asked, LONG), "one")
    answered(router, asked, Route((ONE,), "test", prefix=decide(router, asked, LONG).prefix), Usage(LONG))
    warm = decide(router, asked, LONG)
    assert names(warm) == ["one", "other"]
    kept = LONG // 128 * 128
    assert cold - cost(warm, "one") == kept * 900_000  # 0.9 USD per 1M, in pico-dollars
    elsewhere = request(model="same", controls=Controls(session="t"))
    assert names(decide(router, elsewhere, LONG)) == ["other", "one"]


@pytest.mark.parametrize("model", ["auto", "same"])
def test_a_tool_loop_goes_on_where_it_began(build: Build, fleet: Fleet, model: str) -> None:
    router = build(ONE, OTHER)
    began = request(model=model, needs=TOOLED)
    first, fresh = decide(router, began), decide(router, request(model=model, turns=TOOLS, needs=TOOLED))
    usual, other = fresh.backends[0].name, ONE if fresh.backends[0] is OTHER else OTHER
    answered(router, began, Route((other,), "fell back", prefix=first.prefix), Usage(50), finish="tool_calls")
    going_on = decide(router, request(model=model, turns=TOOLS, needs=TOOLED))
    assert names(going_on)[0] == other.name
    assert going_on.reason.startswith(f"{other.name} continues its tool calls")
    assert names(decide(router, began)) == names(first)
    fleet.states[other.name] = BackendState(False, "unavailable after failures")
    assert names(decide(router, request(model=model, turns=TOOLS, needs=TOOLED)))[0] == usual


def test_a_loop_is_not_left_because_its_backend_is_busy(build: Build, fleet: Fleet) -> None:
    router = build(ONE, OTHER)
    began = request(model="same", needs=TOOLED)
    first = decide(router, began)
    answered(router, began, first, Usage(50), finish="tool_calls")
    fleet.busy("other", Load(4, 9, 4), wait_s=60)
    assert names(decide(router, request(model="same", turns=TOOLS, needs=TOOLED))) == ["other", "one"]
    assert names(decide(router, began)) == ["one", "other"]  # it stands by, behind who can begin at once


def test_an_idle_machine_is_nearly_free_and_a_full_one_costs_its_break_even(build: Build, fleet: Fleet) -> None:
    router = build(machine("gpu"), ONE)
    costs = []
    for running in (0, 4, 7, 8):
        fleet.busy("gpu", Load(running, 0, 8))
        costs.append(cost(decide(router, request()), "gpu"))
    assert costs == sorted(costs)
    fleet.states.clear()
    full = cost(decide(router, request()), "gpu")  # nothing is known of its load
    assert costs[-1] == full
    assert costs[0] == pytest.approx(full * 0.02, rel=0.01)
    fleet.busy("gpu", Load(8, 0, 8, full_tokens_per_second=2000))
    assert cost(decide(router, request()), "gpu") == pytest.approx(full / 2, rel=0.01)


def test_a_machine_asked_for_by_name_costs_what_its_load_says(build: Build, fleet: Fleet) -> None:
    router = build(machine("gpu"), ONE)
    fleet.busy("gpu", Load(0, 0, 8))
    idle = decide(router, request(model="gpu"))
    assert names(idle) == ["gpu"]
    assert cost(idle, "gpu") == cost(decide(router, request()), "gpu")
    fleet.busy("gpu", Load(8, 5, 8), wait_s=60)
    full = decide(router, request(model="gpu"))
    assert (names(full), full.considered[0].excluded) == (["gpu"], "")
    assert cost(full, "gpu") > cost(idle, "gpu")


def test_it_fills_the_machine_and_spills_where_that_is_cheaper_or_sooner(build: Build, fleet: Fleet) -> None:
    cheap = backend("cheap", "hosted", "0.1", model="qwen")
    gpu = machine("gpu")
    router = build(gpu, cheap)
    asked = request(model="qwen")
    fleet.busy("gpu", Load(2, 0, 8))
    assert names(decide(router, asked)) == ["gpu", "cheap"]
    fleet.busy("gpu", Load(8, 0, 8))  # break-even is 0.56 USD per 1M output tokens
    assert names(decide(router, asked)) == ["cheap", "gpu"]
    dear = build(gpu, backend("dear", "hosted", "30", model="qwen"))
    assert names(decide(dear, asked)) == ["gpu", "dear"]
    fleet.busy("gpu", Load(8, 3, 8), wait_s=gpu.spill_after + 0.1)
    spilled = decide(dear, asked)
    assert names(spilled) == ["dear", "gpu"]
    assert "a request would wait about 2.1 s" in next(one.excluded for one in spilled.considered)
    alone = build(gpu)
    assert names(decide(alone, asked)) == ["gpu"]


def test_a_conversation_keeps_to_its_replica_and_another_takes_over_when_it_is_full(build: Build, fleet: Fleet) -> None:
    replicas = [machine(name) for name in ("a", "b", "c")]
    router = build(*replicas)
    sessions = [request(model="qwen", controls=Controls(session=f"s{number}")) for number in range(60)]
    first = [names(decide(router, asked, LONG))[0] for asked in sessions]
    assert first == [names(decide(router, asked, LONG))[0] for asked in sessions]
    assert set(first) == {"a", "b", "c"}
    home = first[0]
    fleet.busy(home, Load(8, 5, 8))
    moved = decide(router, sessions[0], LONG)
    assert names(moved)[0] != home
    assert sorted(names(moved)) == ["a", "b", "c"]
    short = {names(decide(router, asked, 20))[0] for asked in sessions}
    assert home not in short


def test_spot_machines_leave_a_share_to_the_others(build: Build) -> None:
    pool = [machine("steady"), *(machine(name, spot=True) for name in ("s1", "s2", "s3"))]
    sessions = [request(model="qwen", controls=Controls(session=f"s{number}")) for number in range(400)]

    def share(on_demand: float) -> float:
        router = build(*pool, on_demand=on_demand)
        return sum(names(decide(router, asked, LONG))[0] == "steady" for asked in sessions) / len(sessions)

    assert share(0.6) - share(0.0) == pytest.approx(0.6 * 0.75, abs=0.12)
    assert share(1.0) == 1.0
