"""A plan on trial beside a serving router: it serves nobody, is switched to when it is better, and back."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest

from gateway.domain.request import Controls
from gateway.learning.plans.live_plans import PlanTrials
from gateway.learning.plans.plan_trials import CONFIGURED, stage, written
from gateway.learning.plans.verdict import LEAST, Outcome
from gateway.ledger.store.evidence import Finding, write
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import save_plan
from gateway.routing.strategy.strategy import State, Strategy
from tests.fakes.provider import Reply
from tests.learning.conftest import RULE, ShadowedGateway, shadowed_tenant


def alone(model: str, quality: float, usd: float) -> Strategy:
    state = State("", {model: (1.0,)})
    return Strategy("one backend", model, quality, usd, {((), ()): state}, (model,))


SMALL, LARGE = alone("small", 0.9, 0.001), alone("large", 0.95, 0.025)


def written_plan(folder: Path, *strategies: Strategy) -> bytes:
    save_plan(Plan(("small", "large"), strategies, strategies), folder / "plan.json")
    return (folder / "plan.json").read_bytes()


@pytest.fixture
def plan(tmp_path: Path) -> bytes:
    return written_plan(tmp_path, SMALL, LARGE)


async def test_a_plan_on_trial_decides_without_serving(shadowed: ShadowedGateway, tmp_path: Path) -> None:
    trials = PlanTrials(shadowed.gateway.database, shadowed.gateway.pipeline.router, shadowed.gateway.fleet)
    await shadowed.shadows.aclose()
    await shadowed.shadows.open(shadowed.gateway.pipeline, trials)
    shadowed.small.default = Reply(text="41")
    who = shadowed_tenant(models={"auto": {**RULE.model_dump(), "quality": 0.99}})
    id = await shadowed.gateway.database.run(lambda link: stage(link, written_plan(tmp_path, SMALL, LARGE), 1.0))
    await trials.refresh()
    assert await shadowed.ask(1, who, controls=Controls(session="desk")) == "small"
    (found,) = await shadowed.findings()
    said = orjson.loads(found["plans"])
    (tried, dear), (served, cheap) = said[id[:16]], said[CONFIGURED]
    assert (tried, served) == (1.0, 0.0)  # four in five conversations must be the large one's
    assert dear > cheap > 0


async def test_it_is_followed_once_it_is_better_and_no_longer_when_it_is_rolled_back(
    shadowed: ShadowedGateway, plan: bytes
) -> None:
    run, router = shadowed.gateway.database.run, shadowed.gateway.pipeline.router
    router.plans = (Plan(("other", "pool"), (), ()),)  # it stays in use in any case
    trials = PlanTrials(shadowed.gateway.database, router, shadowed.gateway.fleet)
    id = await run(lambda link: stage(link, plan, 1.0))
    cheap, dear, bad = Outcome(1.0, 10**8), Outcome(1.0, 10**10), Outcome(0.0, 10**8)

    async def judge(tried: Outcome, before: Outcome) -> None:
        said = written({id: tried, CONFIGURED: before})
        finding = Finding("r", "search", "small", "large", "shadow", "exact", 0.9, 0.9, 1.0, plans=said)
        await run(lambda link: write(link, [finding] * LEAST, time.time() + 1))

    await trials.refresh()
    assert [one.models for one in router.plans] == [("other", "pool")]
    await judge(cheap, dear)
    await trials.refresh()
    assert trials.stats()["plan"] == id[:8]
    assert [one.models for one in router.plans] == [("small", "large"), ("other", "pool")]
    await judge(bad, dear)
    await trials.refresh()
    assert trials.stats()["plan"] == CONFIGURED[:8]
    assert [one.models for one in router.plans] == [("other", "pool")]


async def test_a_plan_that_cannot_be_read_is_not_followed(shadowed: ShadowedGateway) -> None:
    trials = PlanTrials(shadowed.gateway.database, shadowed.gateway.pipeline.router, shadowed.gateway.fleet)
    await shadowed.gateway.database.run(lambda link: stage(link, b"nonsense", 1.0))
    with pytest.raises(ValueError, match="not a router artefact"):
        await trials.refresh()
    assert shadowed.gateway.pipeline.router.plans == ()
