"""A fitted plan: on disk, at a wanted quality, replayed, and in serving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.quality.router_tables import of_fit
from gateway.domain.backend import Backend
from gateway.domain.request import Turn
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.domain.routing.strategy import StrategyAnswer
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.difficulty.grader import Grader
from gateway.routing.difficulty.weights_file import ArtefactError
from gateway.routing.fit.evaluation import DataError
from gateway.routing.fit.frontier import Frontier
from gateway.routing.fit.outcomes import Outcomes, read_pool
from gateway.routing.fit.plan import fit_outcomes, fit_plan
from gateway.routing.fit.prior import learn_prior, prior
from gateway.routing.fit.replay import replay
from gateway.routing.fit.report import plot, report
from gateway.routing.loading import followed
from gateway.routing.router import Router
from gateway.routing.strategy import plan as plan_module
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import load_plan, save_plan
from tests.routing.conftest import EASY, SPANISH, Fleet, backend, request, tenant
from tests.routing.recorded import POOL, outcomes, rows, write

MODELS = tuple(POOL)
TIERS = {"tiny": "small", "mini": "small", "midi": "large", "grand": "hosted"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes(tmp_path_factory.mktemp("recorded"), rows(400))


@pytest.fixture(scope="module")
def fitted(recorded: Outcomes) -> tuple[Plan, Frontier]:
    return fit_outcomes(recorded, lambda line: None)


@pytest.fixture(scope="module")
def plan(fitted: tuple[Plan, Frontier]) -> Plan:
    return fitted[0]


def test_a_plan_survives_the_disk(plan: Plan, recorded: Outcomes, tmp_path: Path) -> None:
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert (again.models, again.provenance) == (plan.models, plan.provenance)
    few = recorded.part(np.arange(len(recorded)) < 40)
    before, after = list(replay(few, plan, 0.9)), list(replay(few, again, 0.9))
    assert [(each.called, each.quality, each.usd) for each in before] == [
        (each.called, each.quality, each.usd) for each in after
    ]
    for one, other in zip(before, after, strict=True):  # weights are kept in one byte each
        assert dict(other.adequacy) == pytest.approx(dict(one.adequacy), abs=0.02)


def test_a_plan_is_text_that_names_its_models(plan: Plan, tmp_path: Path) -> None:
    save_plan(plan, tmp_path / "plan.json")
    content = orjson.loads((tmp_path / "plan.json").read_bytes())
    cascade = next(each for each in content["strategies"] if each["kind"] == "cascade")
    assert {model for state in cascade["states"] for model in (*state["asked"], *state["ask"])} <= set(MODELS)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda content: content.update(format="another"),
        lambda content: content.pop("strategies"),
        lambda content: content.update(strategies=[]),
        lambda content: content["strategies"][0].update(states=[]),
        lambda content: content.update(models=["else"]),
        lambda content: content["adequacies"]["weights"].update(type="|O"),
        lambda content: content["adequacies"]["weights"].update(zlib="AAAA"),
    ],
)
def test_a_broken_plan_is_told(plan: Plan, tmp_path: Path, break_it: object) -> None:
    save_plan(plan, tmp_path / "plan.json")
    content = orjson.loads((tmp_path / "plan.json").read_bytes())
    assert callable(break_it)
    break_it(content)
    (tmp_path / "plan.json").write_bytes(orjson.dumps(content))
    with pytest.raises(ArtefactError, match=r"plan\.json: "):
        load_plan(tmp_path / "plan.json")


def test_a_higher_target_costs_more_and_reaches_more(plan: Plan, tmp_path: Path) -> None:
    fresh = outcomes(tmp_path, rows(900, seed=9))
    reached = []
    for quality in (0.76, 0.84, 0.93):
        fates = list(replay(fresh, plan, quality))
        reached.append((np.mean([each.quality for each in fates]), np.mean([each.usd for each in fates])))
        assert reached[-1][0] == pytest.approx(quality, abs=0.06)
    assert reached == sorted(reached)


def test_an_answer_is_paid_for_before_it_is_seen(plan: Plan, recorded: Outcomes) -> None:
    for each, place in zip(replay(recorded, plan, 0.93), range(60), strict=False):
        columns = [recorded.models.index(model) for model in each.called]
        assert len(set(columns)) == len(columns) >= 1
        assert each.usd == pytest.approx(recorded.usd[place, columns].sum())
        assert each.quality in recorded.quality[place, columns]
        assert set(each.adequacy) == set(MODELS)


def test_who_is_missing_in_a_row_is_not_called_there(plan: Plan, recorded: Outcomes) -> None:
    quality = recorded.quality.copy()
    quality[:, recorded.models.index("mini")] = np.nan
    fates = list(replay(replace(recorded, quality=quality), plan, 0.9))
    assert {model for each in fates for model in each.called} <= set(MODELS) - {"mini"}
    assert any(len(each.called) > 1 for each in fates)


def test_replay_knows_models_that_the_plan_does_not(plan: Plan, tmp_path: Path) -> None:
    strangers = outcomes(
        tmp_path, [{"id": 1, "prompt": "a", "q": {"x": 1, "y": 0}}], {"x": (2.0, 2.0), "y": (1.0, 1.0)}
    )
    assert [each.called for each in replay(strangers, plan, 0.9)] == [("y",)]


def serving(plan: Plan | None, catalogue: PriceBook, grader: Grader, down: frozenset[str] = frozenset()) -> Router:
    backends = [backend(f"b-{model}", TIERS[model], str(POOL[model][0]), model=model) for model in MODELS]
    return Router(lambda: grader, catalogue, Fleet(set(down)), backends, plans=[plan] if plan else ())


def decided(router: Router, text: str = EASY, quality: float = 1.0, **more: Any) -> Route:
    rule = {"auto": {"quality": quality, "reference": "b-grand"}}
    return router.decide(request(text, **more), tenant(models=rule), ContextEstimate(50, 50))


def test_serving_and_replay_begin_with_the_same_code(
    plan: Plan, recorded: Outcomes, catalogue: PriceBook, grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, float]] = []
    original = plan_module.Plan.begin

    def begin(self: Plan, prompt: str, quality: float, *rest: Any) -> plan_module.Start | None:
        begun.append((prompt, quality))
        return original(self, prompt, quality, *rest)

    monkeypatch.setattr(plan_module.Plan, "begin", begin)
    next(iter(replay(recorded, plan, 0.9)))
    decided(serving(plan, catalogue, grader), quality=1.0)
    assert begun == [(recorded.prompts[0], 0.9), (EASY, plan.quality_of("grand"))]


def test_a_route_carries_the_strategy_in_the_names_of_backends(
    plan: Plan, catalogue: PriceBook, grader: Grader
) -> None:
    route = decided(serving(plan, catalogue, grader))
    assert route.asking is not None
    assert route.strategy.startswith("cascade")
    first = route.asking.next([])
    assert first == (route.backends[0].name,)
    (second,) = route.asking.next([StrategyAnswer(first[0], "7")])
    names = {each.name for each in route.backends}
    assert second in names
    assert route.asking.next([StrategyAnswer(first[0], "7"), StrategyAnswer(second, "7")]) == ()
    assert names == {f"b-{model}" for model in MODELS}
    assert route.escalate_to is None


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (SPANISH, {}),
        (EASY, {"parallel": 2}),
        (EASY, {"turns": [Turn(0, "user", EASY), Turn(1, "tool", "7", results=("c1",))]}),
    ],
)
def test_a_request_of_another_kind_follows_the_grader(
    plan: Plan, catalogue: PriceBook, grader: Grader, text: str, more: dict[str, Any]
) -> None:
    route = decided(serving(plan, catalogue, grader), text, **more)
    assert (route.asking, route.strategy) == (None, "")


def test_a_lower_quality_is_served_by_one_backend(plan: Plan, catalogue: PriceBook, grader: Grader) -> None:
    route = decided(serving(plan, catalogue, grader), quality=0.5)
    assert (route.asking, route.backends[0].name) == (None, "b-tiny")
    assert route.strategy == "one backend: tiny"


def test_a_strategy_does_without_whom_nobody_can_ask(plan: Plan, catalogue: PriceBook, grader: Grader) -> None:
    route = decided(serving(plan, catalogue, grader, frozenset({"b-tiny", "b-mini"})))
    assert route.backends[0].name in ("b-midi", "b-grand")


def test_without_the_reference_in_the_plan_the_grader_decides(plan: Plan, catalogue: PriceBook, grader: Grader) -> None:
    others: list[Backend] = [backend("b-tiny", "small", "0.05", model="tiny"), backend("other", "hosted", "3")]
    router = Router(lambda: grader, catalogue, Fleet(), others, plans=[plan])
    route = router.decide(request(), tenant(), ContextEstimate(50, 50))
    assert (route.asking, route.strategy) == (None, "")


def test_observing_tells_whom_the_strategy_would_ask(plan: Plan, catalogue: PriceBook, grader: Grader) -> None:
    rule = {"auto": {"quality": 1.0, "reference": "b-grand"}}
    router = serving(plan, catalogue, grader)
    route = router.decide(request(), tenant(models=rule, mode="observe"), ContextEstimate(50, 50))
    assert route.asking is None
    assert route.backends[0].name == "b-grand"
    assert route.observed is not None
    assert route.observed.name != "b-grand"
    assert route.strategy.startswith("cascade")


@pytest.mark.parametrize("reference", ["b-tiny", "b-mini", "b-midi", "b-grand"])
@pytest.mark.parametrize("weak", ["", "repetition", "failed"])
def test_no_strategy_asks_a_backend_above_the_ceiling_whatever_the_answers_are(
    plan: Plan, catalogue: PriceBook, grader: Grader, reference: str, weak: str
) -> None:
    rule = {"auto": {"quality": 0.99, "reference": reference}}
    router = serving(plan, catalogue, grader)
    for number in range(20):
        asked = request(f"{EASY} {number}", id=f"r{number}")
        route = router.decide(asked, tenant(models=rule), ContextEstimate(50, 50))
        assert route.backends[0].name not in route.above
        answers: list[StrategyAnswer] = []
        while route.asking and (names := route.asking.next(answers)):
            assert not route.above.intersection(names)
            answers += [StrategyAnswer(name, None if weak else str(len(answers)), weak) for name in names]


def test_too_few_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few"):
        fit_plan([write(tmp_path / "a.jsonl", rows(20))], POOL, lambda line: None)


def test_a_pool_that_nobody_measured_is_expected_to_be_worth_its_prices() -> None:
    plan = prior({"cheap": (0.1, 0.2), "middle": (0.5, 1.0), "dear": (3.0, 15.0)})
    qualities = [plan.quality_of(model) for model in ("cheap", "middle", "dear")]
    assert qualities == sorted(qualities)
    assert plan.strategies[0].description == "cheap"


def test_a_prior_is_learnt_from_measured_pools(tmp_path: Path) -> None:
    found = learn_prior([(outcomes(tmp_path, rows(1500)), POOL)])
    assert found.slope > 0
    assert found.coincidence == 0
    assert found.spread < 1
    assert set(found.models) == set(MODELS)


def test_the_commands_fit_replay_and_tell(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl.gz", rows(300))
    (tmp_path / "pool.json").write_bytes(orjson.dumps(POOL))
    given = ["--data", str(data), "--pool", str(tmp_path / "pool.json")]
    artefact = str(tmp_path / "plan.json")
    fitted = CliRunner().invoke(
        cli, ["router", "fit", *given, "--out", artefact, "--plot", str(tmp_path / "plan.svg"), "--json"]
    )
    assert fitted.exit_code == 0, fitted.output
    shown = orjson.loads(fitted.stdout)
    assert shown["frontier"][-1]["quality"] >= shown["hull"][-1]["quality"]
    assert all(target["low"] <= target["saving"] + 0.05 for target in shown["targets"])
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")
    for chosen in (["--artefact", artefact], []):
        played = CliRunner().invoke(cli, ["router", "replay", *given, "--quality", "0.85", *chosen])
        assert played.exit_code == 0, played.output
        lines = [orjson.loads(line) for line in played.stdout.splitlines()]
        assert len(lines) == 300
        assert set(lines[0]) == {"id", "called", "quality", "usd", "adequacy"}
    told = CliRunner().invoke(cli, ["router", "status", "--artefact", artefact])
    assert told.exit_code == 0, told.output
    assert "from 300 prompts (rows.jsonl.gz)" in told.output


@pytest.mark.parametrize("words", [["fit", "--out", "x.json"], ["replay", "--quality", "0.9"]])
def test_a_missing_file_is_told_in_a_line(tmp_path: Path, words: list[str]) -> None:
    given = ["--data", str(tmp_path / "none.jsonl"), "--pool", str(tmp_path / "none.json")]
    found = CliRunner().invoke(cli, ["router", words[0], *given, *words[1:]])
    assert found.exit_code == 1
    assert "none.json" in found.output


def test_the_table_and_the_plot_show_every_rival(
    fitted: tuple[Plan, Frontier], recorded: Outcomes, tmp_path: Path
) -> None:
    shown = report(fitted[1], recorded)
    assert shown.oracle[-1][0] >= shown.frontier[-1][0]
    assert of_fit(shown).row_count == len(shown.targets)
    best = next(each for each in shown.targets if each.quality == shown.hull[-1][0])
    assert best.saving > 0.5
    assert best.low > 0
    plot(shown, str(tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_pool_file_is_one_flat_object(tmp_path: Path) -> None:
    (tmp_path / "pool.json").write_bytes(orjson.dumps(POOL))
    assert read_pool(tmp_path / "pool.json") == POOL


def test_a_plan_that_cannot_be_read_costs_its_savings_not_the_service(
    plan: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "plan.json").write_text("{}")
    save_plan(plan, tmp_path / "sound.json")
    found = followed([str(tmp_path / name) for name in ("plan.json", "sound.json", "none.json")])
    assert [one.models for one in found] == [plan.models]
    assert caplog.text.count("cannot be used, so the grader decides instead") == 2
    assert followed(()) == ()


def test_each_pool_has_the_plan_that_contains_its_reference(plan: Plan, catalogue: PriceBook, grader: Grader) -> None:
    strangers = Plan(("x", "y"), plan.singles, plan.singles)
    backends = [backend(f"b-{model}", TIERS[model], str(POOL[model][0]), model=model) for model in MODELS]
    router = Router(lambda: grader, catalogue, Fleet(), backends, plans=[strangers, plan])
    assert decided(router).strategy == decided(serving(plan, catalogue, grader)).strategy != ""


def test_check_tells_of_a_plan_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(f"routing: {{artefact: {tmp_path}/none.json}}\n")
    found = CliRunner().invoke(cli, ["check", "--config", str(tmp_path / "gateway.yaml")])
    assert found.exit_code == 2
    assert "routing.artefact: " in found.output
