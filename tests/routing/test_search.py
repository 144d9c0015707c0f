"""Cascades, the search and the frontier on models whose errors are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gateway.domain.routing.strategy import StrategyAnswer
from gateway.routing.fit.cascades import Cascade, run, states, try_all
from gateway.routing.fit.frontier import build, plain
from gateway.routing.fit.search import Evidence, Settings, affordable, decode, encode, learn, play, prices
from gateway.routing.fit.shrink import real_share, shrunken
from gateway.routing.strategy.hull import corners
from gateway.routing.strategy.strategy import RunState, Strategy
from tests.routing.recorded import outcomes, rows


def evidence(folder: Path, count: int = 400, votes: bool = True) -> Evidence:
    found = outcomes(folder, rows(count, votes=votes))
    return Evidence.of(found, np.ones((len(found), 1)))


def quiet(line: str) -> None:
    pass


def test_states_are_told_apart_by_who_agrees_alone() -> None:
    labels = np.array([[3, 3, 5], [9, 9, 2], [1, 2, 1], [-1, 4, 4], [1, 2, 3]])
    codes = encode(labels, (0, 1, 2))
    assert codes[0] == codes[1]
    assert [decode(int(code), 3) for code in codes] == [(1, 1, 2), (1, 1, 2), (1, 2, 1), (0, 1, 1), (1, 2, 3)]


def test_a_plain_cascade_pays_only_for_what_it_asks(tmp_path: Path) -> None:
    known = evidence(tmp_path)
    quality, usd = run(known, (0, 1, 2), 2, np.array([0.75, 0.8, 0.85, 0.9]))
    agree = known.labels[:, 0] == known.labels[:, 1]
    assert usd.tolist() == pytest.approx(
        (known.usd[:, 0] + known.usd[:, 1] + np.where(agree, 0, known.usd[:, 2])).tolist()
    )
    assert quality[agree].tolist() == known.quality[agree, 0].tolist()


def test_a_cascade_plays_as_its_states_do(tmp_path: Path) -> None:
    found = outcomes(tmp_path, rows(200))
    known = Evidence.of(found, np.ones((200, 1)))
    level = known.quality.mean(0)
    ranking = tuple(found.models[place] for place in np.argsort(-level))
    for cascade in (Cascade((0, 1, 2), 2), Cascade((0, 1, 2, 3), 3), Cascade((1, 3, 0, 2), 2)):
        quality, usd = run(known, cascade.members, cascade.agree, level)
        strategy = Strategy("", "", 0.0, 0.0, states(cascade, found.models), ranking)
        for row in range(len(found)):
            asking = RunState(strategy, (1.0,), {model: model for model in found.models})
            answers: list[StrategyAnswer] = []
            while wanted := asking.next(answers):
                answers += [StrategyAnswer(model, found.votes[row][found.models.index(model)]) for model in wanted]
            places = [found.models.index(each.backend) for each in answers]
            assert known.quality[row, places[asking.serves(answers)]] == quality[row]
            assert known.usd[row, places].sum() == pytest.approx(usd[row])


def test_the_beam_reaches_every_set_of_a_small_pool(tmp_path: Path) -> None:
    known = evidence(tmp_path, 150)
    tried = try_all(known, prices(known.usd, known.able), orders=False)
    assert {cascade.members for cascade in tried.cascades if cascade.agree == 2} >= {(0, 1), (0, 1, 2, 3)}
    assert len(tried.cascades) == 6 + 4 + 2 * 1


def test_small_sets_are_tried_in_every_order_that_matters(tmp_path: Path) -> None:
    known = evidence(tmp_path, 150)
    tried = try_all(known, prices(known.usd, known.able))
    triples = {each.members for each in tried.cascades if set(each.members) == {0, 1, 2}}
    assert triples == {(0, 1, 2), (0, 2, 1), (1, 2, 0)}
    assert len(tried.cascades) == 6 + 4 * 3 + 12 + 1
    assert len(set(tried.sets.tolist())) == 6 + 4 + 2


def test_with_little_room_the_orders_of_the_best_sets_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.routing.fit.cascades.CELLS", 150 * 2 * 3)
    known = evidence(tmp_path, 150)
    assert len(try_all(known, prices(known.usd, known.able)).cascades) == 6 + 4 + 2 + 3 + 3


def test_what_orders_differ_by_is_believed_as_far_as_it_is_no_chance() -> None:
    chance = np.random.default_rng(0)
    sets = np.repeat(np.arange(200), 10)
    luck = (chance.random((2000, 400)) < 0.8).astype(np.float32)
    real = (chance.random((2000, 400)) < chance.uniform(0.6, 1.0, (2000, 1))).astype(np.float32)
    assert real_share(luck, sets) < 0.1
    assert real_share(real, sets) == pytest.approx(0.0133 / (0.0133 + 0.1467 / 400), abs=0.02)  # variances
    assert real_share(luck, np.arange(2000)) == 1.0
    level = luck.mean(1)[:, None]
    assert shrunken(level, sets, 0.0)[:10, 0].tolist() == pytest.approx([level[:10].mean()] * 10)
    assert np.allclose(shrunken(level, sets, 1.0), level)


def test_the_luckiest_of_many_equal_orders_promises_less() -> None:
    """Chosen by its own mean, the best of 1,000 coins keeps nothing of what it promises."""
    chance = np.random.default_rng(1)
    sets = np.repeat(np.arange(100), 10)
    coins = (chance.random((1000, 400)) < 0.8).astype(np.float32)
    level = coins.mean(1)[:, None]
    believed = shrunken(level, sets, real_share(coins, sets))
    assert level.max() > 0.85
    assert believed.max() < 0.83


def test_asking_for_agreement_is_found_where_it_pays(tmp_path: Path) -> None:
    known = evidence(tmp_path)
    price = prices(known.usd, known.able)
    learned = learn(known, price, Settings(depth=3))
    quality, usd = play(evidence(tmp_path, 300), learned, 8)
    assert quality.mean() > 0.93  # the best alone has 0.90
    assert usd.mean() < known.usd[:, 3].mean() / 3


def test_the_frontier_beats_every_single_model_where_cheap_ones_prove_each_other_right(tmp_path: Path) -> None:
    frontier = build(("tiny", "mini", "midi", "grand"), evidence(tmp_path), quiet)
    costs = [each.usd for each in frontier.strategies]
    best = max(each.strategy.quality for each in frontier.singles)
    assert costs == sorted(costs)
    assert frontier.strategies[-1].quality > best
    enough = next(each for each in frontier.strategies if each.quality >= best)
    grand = next(each.strategy for each in frontier.singles if each.strategy.description == "grand")
    assert enough.usd < grand.usd / 3
    assert enough.kind == "cascade"


def test_without_votes_the_frontier_is_the_hull_of_single_models(tmp_path: Path) -> None:
    known = evidence(tmp_path, votes=False)
    frontier = build(("tiny", "mini", "midi", "grand"), known, quiet)
    assert {each.kind for each in frontier.strategies} == {"one backend"}
    usd, quality = known.usd.mean(0), known.quality.mean(0)
    hull = corners(usd, quality)
    assert [each.usd for each in frontier.strategies] == pytest.approx(usd[hull].tolist())
    promised = [each.quality for each in frontier.strategies]
    assert promised == pytest.approx(quality[hull].tolist(), abs=0.01)
    assert all(one <= two for one, two in zip(promised, quality[hull], strict=True))


def test_a_prompt_that_tells_is_used(tmp_path: Path) -> None:
    """Half of the prompts are beyond the cheap model, and a feature says which."""
    hard = np.arange(600) % 2 == 0
    features = np.column_stack([np.ones(600), np.where(hard, 1.0, -1.0)])
    quality = np.column_stack([np.where(hard, 0.0, 1.0), np.ones(600)])
    usd = np.tile([1e-5, 1e-3], (600, 1))
    known = Evidence(np.full((600, 2), -1), quality, usd, np.ones((600, 2), dtype=bool), features)
    best = build(("cheap", "dear"), known, quiet).strategies[-1]
    assert best.kind == "prompt-conditional choice"
    assert best.quality == pytest.approx(1.0, abs=0.001)
    assert best.usd == pytest.approx((1e-5 + 1e-3) / 2, rel=0.01)


def test_plain_cascades_need_no_search(tmp_path: Path) -> None:
    frontier = plain(("tiny", "mini", "midi", "grand"), evidence(tmp_path))
    assert {each.kind for each in frontier.strategies} == {"one backend", "cascade"}


@pytest.mark.parametrize(
    ("models", "prompts", "votes", "depth"),
    [(12, 800, True, 4), (2, 9000, False, 1), (3, 100, True, 3), (40, 2000, True, 2), (40, 9000, True, 1)],
)
def test_the_search_goes_as_deep_as_it_can_afford(models: int, prompts: int, votes: bool, depth: int) -> None:
    assert affordable(models, prompts, votes) == depth
