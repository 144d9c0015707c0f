"""A new plan decides in the shadow first; it is switched to, refused or rolled back by what was judged."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.learning.plans.plan_trials import CONFIGURED, compared, decide, known, roll_back, stage, written
from gateway.learning.plans.verdict import LEAST, MOST, Outcome, compare, on_trial, to_roll_back
from gateway.ledger.store.evidence import Finding, write
from gateway.state.sql.database import Database

GOOD, BAD = 1.0, 0.0
CHEAP, DEAR = 10**8, 10**10


def pairs(count: int, tried: tuple[float, float], live: tuple[float, float], worse: int = 0) -> Any:
    """`worse` of the `count` pairs went badly for the one on trial."""
    kept = [(Outcome(*tried), Outcome(*live))] * (count - worse)
    return compare(kept + [(Outcome(BAD, tried[1]), Outcome(*live))] * worse)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (pairs(LEAST - 1, (GOOD, CHEAP), (GOOD, DEAR)), ""),
        (pairs(LEAST, (GOOD, CHEAP), (GOOD, DEAR)), "better"),
        (pairs(LEAST, (GOOD, DEAR), (GOOD, CHEAP)), "refused"),
        (pairs(LEAST, (GOOD, CHEAP), (GOOD, DEAR), worse=20), "refused"),
        (pairs(LEAST, (GOOD, CHEAP), (GOOD, DEAR), worse=2), ""),  # too few to tell from three in a hundred
        (pairs(LEAST, (GOOD, CHEAP), (BAD, CHEAP)), "better"),
        (pairs(MOST, (GOOD, CHEAP), (GOOD, CHEAP)), "refused"),
    ],
)
def test_a_plan_is_better_when_it_is_cheaper_and_not_worse_or_better_and_not_dearer(found: Any, verdict: str) -> None:
    assert on_trial(found) == verdict


def test_what_is_worse_than_before_or_than_promised_is_rolled_back() -> None:
    assert to_roll_back(pairs(LEAST, (GOOD, CHEAP), (BAD, CHEAP)), 0.9)
    assert to_roll_back(compare([(Outcome(0.5, CHEAP), Outcome(0.5, CHEAP))] * LEAST), 0.9)
    assert not to_roll_back(compare([(Outcome(0.5, CHEAP), Outcome(0.5, CHEAP))] * (LEAST - 1)), 0.9)
    assert not to_roll_back(pairs(LEAST, (GOOD, CHEAP), (GOOD, CHEAP)), 0.9)


async def judge(database: Database, outcomes: dict[str, Outcome], at: float, count: int = LEAST) -> None:
    finding = Finding("r", "search", "small", "large", "shadow", "exact", 0.9, 0.9, 1.0, plans=written(outcomes))
    await database.run(lambda connection: write(connection, [finding] * count, at))


async def states(database: Database) -> dict[str, str]:
    return {one.id: one.state for one in await database.run(known)}


async def test_a_plan_is_switched_to_when_it_is_better_and_back_when_it_turns_out_worse(any_database: Database) -> None:
    run = any_database.run
    first = await run(lambda link: stage(link, b"first", 1.0))
    await judge(any_database, {first: Outcome(GOOD, CHEAP), CONFIGURED: Outcome(GOOD, DEAR)}, 2.0)
    assert (await run(lambda link: decide(link, 3.0))).startswith("switched")
    assert await states(any_database) == {first: "live"}

    second = await run(lambda link: stage(link, b"second", 4.0))
    await judge(any_database, {second: Outcome(GOOD, CHEAP / 2), first: Outcome(GOOD, CHEAP)}, 5.0)
    assert (await run(lambda link: decide(link, 6.0))).startswith("switched")
    assert await states(any_database) == {first: "previous", second: "live"}

    await judge(any_database, {second: Outcome(BAD, CHEAP), first: Outcome(GOOD, CHEAP)}, 7.0)
    assert (await run(lambda link: decide(link, 8.0))).startswith("rolled back")
    assert await states(any_database) == {first: "live", second: "retired"}
    assert await run(lambda link: decide(link, 9.0)) == ""  # what was judged before it was live again does not count


async def test_a_plan_that_is_worse_is_refused_and_says_why(any_database: Database) -> None:
    id = await any_database.run(lambda link: stage(link, b"plan", 1.0))
    await judge(any_database, {id: Outcome(BAD, CHEAP), CONFIGURED: Outcome(GOOD, DEAR)}, 2.0)
    assert (await any_database.run(lambda link: decide(link, 3.0))).startswith("refused")
    (one,) = await any_database.run(known)
    assert one.state == "refused"
    assert f"over {LEAST} requests" in one.why
    assert await any_database.run(lambda link: decide(link, 4.0)) == ""


async def test_only_what_both_have_an_outcome_of_is_compared(any_database: Database) -> None:
    id = await any_database.run(lambda link: stage(link, b"plan", 1.0))
    await judge(any_database, {id: Outcome(GOOD, CHEAP)}, 2.0)
    found, _ = await any_database.run(lambda link: compared(link, id, CONFIGURED, 0.0))
    assert found.pairs == 0


async def test_rolling_back_by_hand_follows_what_was_before(any_database: Database) -> None:
    run = any_database.run
    assert not await run(lambda link: roll_back(link, 1.0, "asked for"))
    id = await run(lambda link: stage(link, b"plan", 1.0))
    await judge(any_database, {id: Outcome(GOOD, CHEAP), CONFIGURED: Outcome(GOOD, DEAR)}, 2.0)
    await run(lambda link: decide(link, 3.0))
    assert await run(lambda link: roll_back(link, 4.0, "asked for"))
    assert await states(any_database) == {id: "retired"}


async def test_another_plan_on_trial_replaces_the_first(any_database: Database) -> None:
    first = await any_database.run(lambda link: stage(link, b"first", 1.0))
    second = await any_database.run(lambda link: stage(link, b"second", 2.0))
    assert await states(any_database) == {first: "retired", second: "shadow"}
    await any_database.run(lambda link: stage(link, b"first", 3.0))
    assert await states(any_database) == {first: "shadow", second: "retired"}
