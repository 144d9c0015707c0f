"""A letter is tried for three days and then dead until somebody retries; what nobody acknowledges is escalated once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.alerts.delivery.deliveries import GIVE_UP_S, LONGEST_WAIT_S, wait_s
from gateway.domain.policy import AlertsPolicy, Notify, Policy
from gateway.state.sql.database import Database
from tests.alerts.samples import Receiver, book, make_alerts, policy, row
from tests.fakes.clock import StoppedClock


def escalating(*targets: str, **facts: Any) -> Policy:
    receivers = tuple(Notify(webhook=target) for target in targets)
    rules = AlertsPolicy(escalate_to=receivers, escalate_after=600.0, **facts)
    return policy("env:HOOK", alerts=("50%", "100%")).model_copy(update={"alerts": rules})


def test_tries_come_ever_more_slowly() -> None:
    assert [wait_s(tries) for tries in (1, 2, 3, 9, 10, 500)] == [2, 4, 8, 512, LONGEST_WAIT_S, LONGEST_WAIT_S]


async def test_a_receiver_that_answers_500_for_ever_ends_among_the_dead_letters(
    any_database: Database, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    clock = StoppedClock()
    receiver.script = ["fail"] * 1000
    await book(any_database, row(1, "6", clock))
    alerts = make_alerts(any_database, {"search": policy("env:HOOK")}, receiver, clock)
    await alerts.open()
    await alerts.check_once()
    began, tries = clock.now, 0
    while clock.now < began + GIVE_UP_S:
        tries += await alerts.deliver_once()
        assert await alerts.dead() == []
        clock.now += 3600
    assert await alerts.deliver_once() == 1
    (dead,) = await alerts.dead("search")
    assert (dead.tries, dead.last_error, dead.dead_at) == (tries + 1, "answered 500", clock.now)
    assert await alerts.dead("other") == []
    assert "given up" in caplog.text
    clock.now += 10 * LONGEST_WAIT_S
    assert await alerts.deliver_once() == 0

    assert await alerts.revive("other") == 0
    assert await alerts.revive("search") == 1
    receiver.script = []
    assert await alerts.deliver_once() == 1
    assert await alerts.dead() == []
    (letter,) = [one for one in await alerts.sent() if one.target]
    assert letter.delivered_at == clock.now
    assert alerts.stats()["dead"] == 1
    await alerts.aclose()


async def test_what_is_critical_and_not_acknowledged_in_time_is_escalated_once(
    any_database: Database, receiver: Receiver
) -> None:
    clock = StoppedClock()
    await book(any_database, row(1, "12", clock))
    policies = {"search": escalating("env:OTHER_HOOK")}
    workers = [make_alerts(any_database, policies, receiver, clock) for _ in range(3)]
    for alerts in workers:
        await alerts.open()
    assert await workers[0].check_once() == 2
    await workers[0].deliver_once()
    clock.now += 599
    assert await workers[0].escalate_once() == 0
    clock.now += 1
    assert sum(await asyncio.gather(*(alerts.escalate_once() for alerts in workers))) == 1
    assert await workers[1].deliver_once() == 1
    body, _ = receiver.got[-1]
    assert (body["threshold"], body["escalated"]) == ("100%", True)
    assert body["text"].startswith("Not acknowledged for 10 minutes: Team search has used up")
    clock.now += 86400
    assert await workers[2].escalate_once() == 0
    for alerts in workers:
        await alerts.aclose()


async def test_what_somebody_looks_after_is_not_escalated(any_database: Database, receiver: Receiver) -> None:
    clock = StoppedClock()
    await book(any_database, row(1, "12", clock))
    alerts = make_alerts(any_database, {"search": escalating("env:OTHER_HOOK")}, receiver, clock)
    await alerts.check_once()
    (critical,) = [one for one in await alerts.sent() if one.severity == "critical" and not one.target]
    assert await alerts.acknowledge("no such alert", "ann") is None
    assert await alerts.acknowledge(critical.id, "ann") == "search"
    clock.now += 60
    assert await alerts.acknowledge(critical.id, "bob") == "search"
    (seen,) = [one for one in await alerts.sent() if one.id == critical.id]
    assert (seen.acknowledged_by, seen.acknowledged_at) == ("ann", clock.now - 60)
    clock.now += 86400
    assert await alerts.escalate_once() == 0


async def test_a_policy_that_no_longer_escalates_sends_nothing(database: Database, receiver: Receiver) -> None:
    clock = StoppedClock()
    await book(database, row(1, "12", clock))
    await make_alerts(database, {"search": escalating("env:OTHER_HOOK")}, receiver, clock).check_once()
    clock.now += 600
    for policies in ({}, {"search": policy()}):
        await make_alerts(database, policies, receiver, clock).escalate_once()
    assert [one.target for one in await make_alerts(database, {}).sent() if one.target] == ["env:HOOK"] * 2


async def test_receivers_hear_only_of_what_is_grave_enough(database: Database) -> None:
    clock = StoppedClock()
    await book(database, row(1, "12", clock))
    everyone = AlertsPolicy(
        notify=(
            Notify(webhook="env:ALL"),
            Notify(slack="env:GRAVE", severity="critical"),
            Notify(email="env:SOME", severity="warning"),
        )
    )
    alerts = make_alerts(database, {"search": policy().model_copy(update={"alerts": everyone})}, clock=clock)
    await alerts.check_once()
    heard = sorted((one.target, one.payload["threshold"]) for one in await alerts.sent() if one.target)
    assert heard == [
        *(("email:env:SOME", share) for share in ("100%", "80%")),
        *(("env:ALL", share) for share in ("100%", "50%", "80%")),
        ("slack:env:GRAVE", "100%"),
    ]
