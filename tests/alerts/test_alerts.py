"""Each threshold is heard of once, whoever notices and however often; a webhook is tried until it accepts."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from gateway.alerts.alert import KINDS
from gateway.alerts.alerts import Alerts
from gateway.ledger.store.writer import Writer
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from tests.alerts.samples import Receiver, book, make_alerts, make_receivers, policy, row
from tests.fakes.clock import StoppedClock
from tests.ledger.samples import journal, spend
from tests.support.waiting import until


async def test_a_threshold_fires_once_and_is_logged(any_database: Database, caplog: pytest.LogCaptureFixture) -> None:
    clock = StoppedClock()
    alerts = make_alerts(any_database, {"search": policy()}, clock=clock)
    assert await alerts.check_once() == 0
    for number, (usd, fired) in enumerate([("4.99", 0), ("0.01", 1), ("1", 0), ("2", 1), ("5", 1), ("9", 0)]):
        clock.now += 1
        await book(any_database, spent := row(number, usd, clock))
        alerts.notice([spent])
        assert await alerts.check_once() == fired
    assert [one.payload["threshold"] for one in await alerts.sent("search")][::-1] == ["50%", "80%", "100%"]
    assert sum(" alert: " in entry.message for entry in caplog.records) == 3
    assert all(one.target == "" and one.delivered_at for one in await alerts.sent())


async def test_all_thresholds_passed_at_once_fire_each(database: Database) -> None:
    clock = StoppedClock()
    await book(database, row(1, "25", clock))
    alerts = make_alerts(database, {"search": policy()}, clock=clock)
    assert await alerts.check_once() == 3


async def test_only_real_priced_spend_of_the_window_counts(database: Database) -> None:
    clock = StoppedClock()
    await book(
        database,
        row(1, "100", clock, at=clock.now - 86400.0 * 2),
        row(2, "100", clock, simulated=True),
        row(3, "100", clock, team="other"),
        row(4, "1", clock, cost_pico=None),
    )
    assert await make_alerts(database, {"search": policy()}, clock=clock).check_once() == 0


async def test_a_new_window_fires_anew_and_late_rows_fire_in_their_own(database: Database) -> None:
    clock = StoppedClock()
    alerts = make_alerts(database, {"search": policy(alerts=("100%",))}, clock=clock)
    assert await alerts.check_once() == 0
    yesterday = clock.now
    clock.now += 86400
    late, today = row(1, "10", clock, at=yesterday), row(2, "10", clock)
    await book(database, late, today)
    alerts.notice([late, today])
    assert await alerts.check_once() == 2
    starts = {one.payload["window_start"] for one in await alerts.sent()}
    assert len(starts) == 2


async def test_beside_sqlites_only_writer_the_ledger_is_summed_when_an_alert_may_be_due(database: Database) -> None:
    clock, sums = StoppedClock(), list[str]()
    alerts = make_alerts(database, {"search": policy(alerts=("50%",))}, clock=clock)
    await alerts.check_once()

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "sum(" in statement:
            sums.append(statement)

    event.listen(database.engine, "before_cursor_execute", count)
    for number in range(4):
        await book(database, spent := row(number, "1", clock))
        alerts.notice([spent])
        assert await alerts.check_once() == 0
    assert alerts.used() == {("search", "day", "10"): 0.4}
    assert sums == []
    await book(database, spent := row(4, "1", clock))
    alerts.notice([spent])
    assert await alerts.check_once() == 1
    assert len(sums) == 1
    alerts.notice([row(5, "5", clock)])  # never booked: what was heard is not what is spent
    assert await alerts.check_once() == 0
    assert len(sums) == 2
    assert alerts.used() == {("search", "day", "10"): 0.5}


async def test_a_new_process_looks_at_every_team_by_itself(database: Database) -> None:
    clock = StoppedClock()
    await book(database, row(1, "6", clock))
    assert await make_alerts(database, {"search": policy()}, clock=clock).check_once() == 1
    await book(database, row(2, "3", clock))
    assert await make_alerts(database, {"search": policy()}, clock=clock).check_once() == 1
    assert await make_alerts(database, {"search": policy()}, clock=clock).check_once() == 0


async def test_a_changed_policy_is_looked_at_without_new_spend(database: Database) -> None:
    clock = StoppedClock()
    await book(database, row(1, "6", clock))
    in_force = [{"search": policy(limit="100")}]
    alerts = make_alerts(database, lambda: in_force[-1], clock=clock)
    assert await alerts.check_once() == 0
    in_force.append({"search": policy(limit="7")})
    assert await alerts.check_once() == 2


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["0.5", "1", "2.5", "4"]), st.booleans()), min_size=3, max_size=14
    )
)
def test_each_threshold_fires_exactly_once_across_restarts_and_concurrent_processes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, bool]]
) -> None:
    """Four processes notice and look in any order and at the same time, each may be replaced by a new one."""
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('alerts')}/ledger.sqlite")
    database.upgrade()
    clock, policies = StoppedClock(), {"search": policy("env:HOOK", "env:OTHER_HOOK")}

    async def scenario() -> None:
        workers = [make_alerts(database, policies, clock=clock) for _ in range(4)]
        fired, spent = 0, Decimal(0)
        for number, (who, usd, restart) in enumerate(steps):
            spent += Decimal(usd)
            await book(database, new := row(number, usd, clock))
            if restart:
                workers[who] = make_alerts(database, policies, clock=clock)
            for alerts in workers[: who + 1]:
                alerts.notice([new])
            fired += sum(await asyncio.gather(*(alerts.check_once() for alerts in workers)))
        reached = [share for share in ("0.5", "0.8", "1.0") if spent >= Decimal(share) * 10]
        assert fired == len(reached)
        sent = await workers[0].sent(limit=1000)
        assert len([one for one in sent if not one.target]) == len(reached)
        assert len([one for one in sent if one.target]) == 2 * len(reached)

    asyncio.run(scenario())
    database.close()


async def test_a_webhook_is_tried_until_it_accepts(
    any_database: Database, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    clock = StoppedClock()
    receiver.script = ["fail", "hang", "redirect", "cut"]
    await book(any_database, row(1, "6", clock))
    alerts = make_alerts(any_database, {"search": policy("env:HOOK")}, receiver, clock)
    await alerts.open()
    await alerts.check_once()
    errors = []
    for _ in range(5):
        assert await alerts.deliver_once() == 1
        assert await alerts.deliver_once() == 0  # not before its time
        (delivery,) = [one for one in await alerts.sent() if one.target]
        errors.append(delivery.last_error)
        clock.now += 1000
    assert await alerts.deliver_once() == 0
    assert errors[0] == "answered 500"
    assert errors[1].startswith("no answer within")
    assert "redirects are not followed" in errors[2]
    assert "cannot be reached" in errors[3]
    assert errors[4] == ""
    assert receiver.elsewhere == 0
    assert len(receiver.got) == 5
    bodies, keys = zip(*receiver.got, strict=True)
    assert len(set(keys)) == 1
    assert all(body == bodies[0] for body in bodies)
    assert bodies[0]["threshold"] == "50%"
    assert bodies[0]["spent_usd"] == "6"
    assert delivery.tries == 5
    assert delivery.delivered_at
    assert alerts.stats() == {"created": 1, "delivered": 1, "failures": 4, "dead": 0, "escalated": 0}
    assert "secret-token" not in caplog.text
    await alerts.aclose()


async def test_a_letter_not_yet_accepted_survives_a_restart(database: Database, receiver: Receiver) -> None:
    clock = StoppedClock()
    receiver.script = ["fail"]
    await book(database, row(1, "6", clock))
    first = make_alerts(database, {"search": policy("env:HOOK")}, receiver, clock)
    await first.open()
    await first.check_once()
    await first.deliver_once()
    await first.aclose()
    clock.now += 1000
    second = make_alerts(database, {"search": policy("env:HOOK")}, receiver, clock)
    await second.open()
    assert await second.check_once() == 0
    assert await second.deliver_once() == 1
    assert [key for _, key in receiver.got] == [receiver.got[0][1]] * 2
    await second.aclose()


async def test_many_processes_deliver_a_letter_once(any_database: Database, receiver: Receiver) -> None:
    clock = StoppedClock()
    await book(any_database, row(1, "25", clock))
    workers = [make_alerts(any_database, {"search": policy("env:HOOK")}, receiver, clock) for _ in range(4)]
    for alerts in workers:
        await alerts.open()
    await workers[0].check_once()
    delivered = await asyncio.gather(*(alerts.deliver_once() for alerts in workers))
    assert sum(delivered) == 3
    assert sorted(body["threshold"] for body, _ in receiver.got) == ["100%", "50%", "80%"]
    for alerts in workers:
        await alerts.aclose()


async def test_a_receiver_that_hangs_keeps_no_other_waiting(database: Database, receiver: Receiver) -> None:
    clock = StoppedClock()
    receiver.script = ["hang"]
    await book(database, row(1, "25", clock))
    alerts = make_alerts(database, {"search": policy("env:HOOK")}, receiver, clock)
    await alerts.open()
    await alerts.check_once()
    assert await alerts.deliver_once() == 3
    assert len(receiver.got) == 3
    assert alerts.stats()["delivered"] == 2
    await alerts.aclose()


async def test_a_variable_that_is_not_set_is_named_and_tried_later(database: Database) -> None:
    clock = StoppedClock()
    await book(database, row(1, "6", clock))
    alerts = make_alerts(database, {"search": policy("env:NOT_SET")}, clock=clock)
    await alerts.open()
    await alerts.check_once()
    await alerts.deliver_once()
    (delivery,) = [one for one in await alerts.sent() if one.target]
    assert delivery.last_error == "env:NOT_SET is not set in the gateway's environment"
    await alerts.aclose()


async def test_a_test_alert_goes_to_every_receiver_at_once(database: Database, receiver: Receiver) -> None:
    receiver.script = ["accept", "fail"]
    alerts = make_alerts(database, {"search": policy("env:HOOK", "env:OTHER_HOOK", "env:NOT_SET")}, receiver)
    await alerts.open()
    answers = await alerts.test("search")
    assert sorted(answers) == ["env:HOOK", "env:NOT_SET", "env:OTHER_HOOK"]
    assert all(list(kinds) == list(KINDS) for kinds in answers.values())
    said = [one.said for target in ("env:HOOK", "env:OTHER_HOOK") for one in answers[target].values()]
    assert sorted(said) == ["answered 204"] * (2 * len(KINDS) - 1) + ["answered 500"]
    assert {one.accepted for one in answers["env:NOT_SET"].values()} == {False}
    assert all(body["test"] and body["team"] == "search" for body, _ in receiver.got)
    assert await alerts.test("nobody") == {}
    assert await alerts.sent() == []
    await alerts.aclose()


async def test_beside_the_writer_it_hears_of_spend_by_itself(
    database: Database, receiver: Receiver, tmp_path: Path
) -> None:
    directory = tmp_path / "journal"
    books = journal(directory)
    await books.start()
    policies = {"search": policy("env:HOOK", limit="0.0001")}
    known = make_receivers(lambda _: receiver.url, timeout_s=10)
    alerts = Alerts(database, lambda: policies, receivers=known, interval_s=0.01)
    writer = Writer(directory, database, on_rows=alerts.notice, interval_s=0.01)
    await alerts.open()
    tasks = Tasks()
    tasks.spawn(writer.run(), "writer")
    tasks.spawn(alerts.run(), "alerts")
    for _ in range(3):
        spend(books)
    await until(lambda: len(receiver.got) == 3)
    await tasks.aclose()
    await alerts.aclose()
    await books.aclose()
    await writer.aclose()
