"""The page's figures are the usage report's, of one team, at one moment; simulated traffic is in none of them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from sqlalchemy import insert

from gateway.alerts.detect.standing import standings
from gateway.api.routes.usage import UsageFigures, UsageQuery
from gateway.cache.quality.error_bound import Measured
from gateway.dashboard.data import Figures
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import iso
from gateway.errors import LedgerUnavailable
from gateway.learning.feedback import Feedback
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.formats import as_object
from gateway.ledger.reports.report import usage
from gateway.policy.keys import create
from gateway.settings.prices import PriceSettings
from gateway.state.sql.database import Database
from gateway.state.sql.tables import alerts, feedback, keys
from tests.dashboard.samples import DAY, NOW, USD, checked, policies, put, row, traffic
from tests.fakes.clock import StoppedClock
from tests.ledger.booked import roll_up

MONTH = Budget(limit_usd=Decimal(10), timezone="Europe/Madrid")
DAY_LONG = Budget(limit_usd=Decimal("0.5"), window="day", on_exhausted="downgrade")
TOTAL = Budget(limit_usd=Decimal(100), window="total")
ERRORS = {"search": {"kinds": {"en/text/opening": Measured(lookups=50, hits=20).as_object()}}}


@pytest.fixture(scope="module")
def catalogue() -> PriceBook:
    return PriceBook.load()


def make_figures(
    database: Database, catalogue: PriceBook, clock: StoppedClock | None = None, **found: dict[str, Any]
) -> Figures:
    return Figures(
        database=database,
        policies=policies(found),
        prices=catalogue,
        backends=lambda: (),
        feedback=Feedback(database),
        errors=lambda: ERRORS,
        clock=clock or StoppedClock(NOW),
    )


async def compare(database: Database, catalogue: PriceBook, figures: dict[str, Any]) -> None:
    """The figures are those of the usage report. A request that two backends served is counted at its first call."""
    since = NOW // DAY * DAY - 29 * DAY
    for by in ("day", "backend", "model", "key", "tag"):
        report = as_object(await usage(database, team="search", since=since, by=by, prices=catalogue))
        rows = figures["tags"] if by == "tag" else figures["by"][by]
        assert [one[by] for one in rows] == [one[by] for one in report["rows"]]
        for mine, its in zip(rows, report["rows"], strict=True):
            uncounted = {"requests"} if by in ("backend", "model") else set()
            assert {name: its[name] for name in mine if name not in uncounted} == {
                name: value for name, value in mine.items() if name not in uncounted
            }
        assert figures["total"] == {name: report["total"][name] for name in figures["total"]}
        assert figures["simulated"] == report["simulated"]


async def test_every_grouping_and_the_total_are_those_of_the_usage_report(
    any_database: Database, catalogue: PriceBook
) -> None:
    await traffic(any_database)
    figures = await make_figures(any_database, catalogue).of("search", "30")
    await compare(any_database, catalogue, figures)
    assert figures["total"]["cost_usd"] == "8.75"
    assert figures["total"]["requests"] == 7
    assert (figures["since"], figures["at"]) == (iso(NOW // DAY * DAY - 29 * DAY), iso(NOW))


async def test_rolled_up_rows_count_as_in_the_usage_report(any_database: Database, catalogue: PriceBook) -> None:
    await traffic(any_database)
    alike = {"requests": 3, "request_id": "req_stand_in", "at": NOW - 7200, "team": "search", "key_id": "key_help"}
    roll = partial(roll_up, any_database)
    await asyncio.to_thread(roll, attempts=3, outcome="failed", cost_pico=0, output_tokens=0, **alike)
    await asyncio.to_thread(roll, attempts=3, cost_pico=300, **alike)
    figures = await make_figures(any_database, catalogue).of("search", "30")
    assert figures["total"]["requests"] == 10
    await compare(any_database, catalogue, figures)


async def test_superseded_rows_and_background_checks_count_as_in_the_usage_report(
    any_database: Database, catalogue: PriceBook
) -> None:
    first = row(cost_pico=None)
    await put(
        any_database,
        first,
        row(id="again", request_id=first["request_id"], supersedes=first["id"], cost_pico=3 * USD),
        row(request_id=first["request_id"], attempt=2, kind="shadow", cost_pico=USD),
        row(attempt=0, kind="idle", cache="off", cost_pico=5 * USD),
    )
    figures = await make_figures(any_database, catalogue).of("search", "30")
    assert (figures["total"]["requests"], figures["total"]["cost_usd"]) == (1, "9")
    await compare(any_database, catalogue, figures)


async def test_tiers_and_kinds_of_hits_add_up_to_the_total(any_database: Database, catalogue: PriceBook) -> None:
    await traffic(any_database)
    figures = await make_figures(any_database, catalogue).of("search", "30")
    total = figures["total"]
    assert [tier["tier"] for tier in figures["tiers"]] == ["small", "large", "hosted"]
    assert sum(Decimal(tier["cost_usd"]) for tier in figures["tiers"]) == Decimal(total["cost_usd"])
    assert sum(tier["unpriced"] for tier in figures["tiers"]) == total["unpriced"] == 1
    assert [tier["answers"] for tier in figures["tiers"]] == [1, 2, 2]
    assert [tier["escalated"] for tier in figures["tiers"]] == [1, 0, 0]
    assert sum(hit["answers"] for hit in figures["cache"]) == total["cache_answers"] == 2
    assert sum(Decimal(hit["saved_usd"]) for hit in figures["cache"]) == Decimal(total["saved_usd"]) == 3
    assert {hit["kind"]: hit["unpriced"] for hit in figures["cache"]} == {"exact": 0, "semantic": 1}


async def test_hits_by_kind_of_question_add_up_and_have_the_measured_errors_of_the_team(
    any_database: Database, catalogue: PriceBook
) -> None:
    await put(
        any_database,
        *(
            row(attempt=0, cache=kind, saved_pico=USD, traffic_class="en/text/opening")
            for kind in ("exact", "semantic")
        ),
        row(attempt=0, saved_pico=USD, traffic_class="es/text/opening"),
        row(traffic_class="es/text/opening"),
        row(attempt=0, saved_pico=USD, team="chat", traffic_class="en/text/opening"),
    )
    figures = make_figures(any_database, catalogue)
    seen = await figures.of("search", "30", ["answers"])
    assert [(one["kind"], one["answers"], one["saved_usd"]) for one in seen["cache_classes"]] == [
        ("en/text/opening", 2, "2"),
        ("es/text/opening", 1, "1"),
    ]
    assert seen["measured_classes"] == ERRORS["search"]["kinds"]
    assert (await figures.of("chat", "30", ["answers"]))["measured_classes"] == {}


async def test_quality_is_that_of_the_usage_report(database: Database, catalogue: PriceBook) -> None:
    await traffic(database)
    assert (await make_figures(database, catalogue).of("search", "30", ["quality"]))["objectives"] == []
    figures = make_figures(database, catalogue, search={"slo": "97%"})
    (one,) = (await figures.of("search", "30", ["quality"]))["objectives"]
    assert (one["team"], one["class"], one["objective"], one["state"]) == ("search", "all", 0.97, "unknown")


async def test_a_team_sees_nothing_of_another(database: Database, catalogue: PriceBook) -> None:
    await traffic(database)
    figures = make_figures(database, catalogue, chat={"budget": MONTH})
    seen = await figures.of("chat", "30")
    assert (seen["total"]["cost_usd"], seen["total"]["saved_usd"], seen["total"]["requests"]) == ("7", "1", 2)
    assert {line["key"] for line in seen["by"]["key"]} == {"key_chat", "key_shop"}
    assert seen["budgets"][0]["standings"][0]["spent_usd"] == "7"
    assert "search" not in orjson.dumps(seen).decode()
    nobody = await figures.of("nobody", "30")
    assert nobody["total"]["requests"] == 0
    assert not any(nobody[name] for name in ("simulated", "budgets", "tiers", "cache", "latency", "dearest", "alerts"))
    assert not any(nobody["by"].values())


async def test_wrong_hits_are_those_of_the_usage_report_and_of_nobody_else(
    any_database: Database, catalogue: PriceBook
) -> None:
    weights = {"weight": 40.0, "weight_squared": 80.0, "weight_wrong": 2.0}
    await checked(any_database, "search", lookups=1000, hits=200, checked=20, wrong=1, called_wrong=3, **weights)
    await checked(any_database, "chat", lookups=77_777, hits=777)
    figures = make_figures(any_database, catalogue)
    seen = (await figures.of("search", "30"))["wrong_hits"]
    assert (seen["wrong_of_lookups"], seen["wrong_of_hits"], seen["called_wrong"]) == (0.01, 0.05, 3)
    assert 0 < seen["interval"][0] < 0.01 < seen["interval"][1] < 0.06
    other = await figures.of("chat", "30")
    assert (other["wrong_hits"]["hits"], other["wrong_hits"]["wrong_of_lookups"]) == (777, None)
    assert (await figures.of("nobody", "30"))["wrong_hits"] is None
    spend = UsageFigures(
        any_database,
        catalogue,
        policy_of=lambda team: policies().current.find(team)[0],
        backends=tuple,
        organisations={},
        terms=PriceSettings(),
        clock=StoppedClock(NOW),
    )
    told = await spend.read(UsageQuery(team="search", since=NOW - 30 * DAY, until=NOW))
    assert told.as_object()["wrong_hits"] == [{"team": "search", **seen}]
    everybody = (await spend.read(UsageQuery())).wrong_hits
    assert [one["team"] for one in everybody] == ["chat", "search"]
    assert (await spend.read(UsageQuery(until=NOW - DAY))).wrong_hits == []


async def test_the_period_begins_with_a_day_of_utc(database: Database, catalogue: PriceBook) -> None:
    midnight = NOW // DAY * DAY
    await put(database, row(at=midnight - 0.001), row(at=midnight), row(at=midnight - DAY))
    figures = make_figures(database, catalogue)
    assert (await figures.of("search", "1"))["total"]["requests"] == 1
    assert (await figures.of("search", "2"))["total"]["requests"] == 3


async def test_a_budget_stands_as_the_usage_report_says(any_database: Database, catalogue: PriceBook) -> None:
    await traffic(any_database)
    found = {"budget": (MONTH, DAY_LONG, TOTAL)}
    month, day, total = (await make_figures(any_database, catalogue, search=found).of("search", "1"))["budgets"]
    january = 1_798_758_000.0  # midnight in Madrid
    policy = policies({"search": found}).current.policies["search"]
    told = await any_database.run(lambda connection: standings(connection, {"search": policy}, {}, NOW), writes=False)
    seen = [one for each in (month, day, total) for one in each["standings"]]
    assert [{**one, "early": True} for one in told] == seen  # fewer than 20 calls
    (standing,) = month["standings"]
    assert (month["start"], month["timezone"], month["limit"]) == (iso(january), "Europe/Madrid", "10")
    spent = as_object(await usage(any_database, team="search", since=january))["total"]["cost_usd"]
    assert standing["spent_usd"] == spent == "8.75"
    assert month["passed"] == pytest.approx((NOW - january) / (31 * DAY))
    assert (day["standings"][0]["left_usd"], day["standings"][0]["used"]) == ("-3.25", 7.5)
    assert (total["start"], total["end"], total["passed"], total["course"]) == (None, None, None, [])


async def test_the_course_of_a_budget_ends_at_what_is_spent(any_database: Database, catalogue: PriceBook) -> None:
    await put(any_database, *(row(at=NOW - hour * 3600, cost_pico=USD // 8) for hour in range(1, 300)))
    await put(any_database, row(at=NOW - 40 * DAY, cost_pico=99 * USD))  # another month's
    tokens = Budget(limit_tokens=9000)
    found = (await make_figures(any_database, catalogue, search={"budget": (MONTH, tokens)}).of("search", "1"))[
        "budgets"
    ]
    for budget, spent in zip(found, ("37.375", str(299 * 30)), strict=True):
        course = [(at, Decimal(amount)) for at, amount in budget["course"]]
        assert course == sorted(course)
        assert 0 < len(course) <= 120
        assert course[-1][1] == Decimal(spent)
        assert budget["start"] <= course[0][0] < course[-1][0] <= iso(NOW)
        assert {budget["unit"]: str(budget["standings"][0][f"spent_{budget['unit']}"])} == {budget["unit"]: spent}


async def test_each_key_has_its_own_standing_with_its_name(database: Database, catalogue: PriceBook) -> None:
    await traffic(database)
    key = {"id": "key_help", "digest": bytes(32), "team": "search", "name": "Help desk", "scopes": "inference"}
    await database.run(lambda connection: connection.execute(insert(keys), [{**key, "created_at": NOW}]))
    budget = Budget(limit_usd=Decimal(4), per="key", window="day")
    figures = await make_figures(database, catalogue, search={"budget": budget}).of("search", "1")
    (each,) = figures["budgets"]
    assert [(one["subject"], one["spent_usd"]) for one in each["standings"]] == [
        ("key_shop", "3.5"),
        ("key_help", "0.25"),
    ]
    assert each["course"] == []
    assert figures["key_names"] == {"key_help": "Help desk"}


async def test_savings_are_those_of_the_statement_and_may_be_negative(
    any_database: Database, catalogue: PriceBook
) -> None:
    await traffic(any_database)
    price = PriceEntry(input=Decimal("0.000001"), output=Decimal("0.000002"))
    backend = Backend(name="gpt", kind="openai", base_url="http://gpt/v1", tier="hosted", model="gpt", price=price)
    room_ = Figures(
        database=any_database,
        policies=policies(),
        prices=catalogue,
        backends=lambda: (backend,),
        feedback=Feedback(any_database),
        errors=dict,
        clock=StoppedClock(NOW),
    )
    found = (await room_.of("search", "30"))["savings"]
    (one,) = found["teams"]
    assert one["reference"] == "gpt"
    assert Decimal(one["saved_usd"]) == Decimal(one["baseline_usd"]) - Decimal(one["cost_usd"]) < 0
    assert found["method"]
    alone = (await make_figures(any_database, catalogue).of("search", "30"))["savings"]["teams"][0]
    assert (alone["reference"], alone["saved_usd"]) == (None, None)


async def test_a_short_period_is_told_by_hours_too(database: Database, catalogue: PriceBook) -> None:
    await traffic(database)
    figures = make_figures(database, catalogue)
    by = (await figures.of("search", "1"))["by"]
    report = as_object(await usage(database, team="search", since=NOW // DAY * DAY, by="hour"))
    assert len(by["hour"]) == len(report["rows"]) > 0
    for mine, its in zip(by["hour"], report["rows"], strict=True):
        assert mine == {**{name: its[name] for name in mine}, "hour": its["hour"].removesuffix("Z")}
    assert "hour" not in (await figures.of("search", "30"))["by"]


async def test_days_hours_and_months_are_those_of_the_teams_zone(any_database: Database, catalogue: PriceBook) -> None:
    begin = datetime(2027, 1, 1, tzinfo=ZoneInfo("America/Bogota")).timestamp()
    times = [begin - 60, begin + 60, begin + DAY - 60, NOW - 60]
    await put(any_database, *(row(at=at, cost_pico=(1 + place) * USD) for place, at in enumerate(times)))
    figures = make_figures(any_database, catalogue, search={"timezone": "America/Bogota"})
    found = await figures.of("search", "month")
    assert (found["since"], found["first"], found["end"]) == (iso(begin), "2027-01-01", "2027-01-15T07:00:00")
    assert [(one["day"], one["cost_usd"]) for one in found["by"]["day"]] == [("2027-01-01", "5"), ("2027-01-15", "4")]
    assert found["pace"] == {"days": 6.3, "until": "2027-01-31", "usd": "19.622516556291"}  # 9 + 4 × 16.7 / 6.3 days
    today = await figures.of("search", "1")
    assert [(one["day"], one["cost_usd"]) for one in today["by"]["day"]] == [("2027-01-15", "4")]
    assert [one["hour"] for one in today["by"]["hour"]] == ["2027-01-15T06:00"]
    everybody = await figures.of("", "month", ["teams"])  # the default policy has no zone
    assert set(everybody["stack"]["steps"]) == {"2027-01-01", "2027-01-02", "2027-01-15"}


async def test_days_are_right_where_clocks_changed_within_the_period(
    any_database: Database, catalogue: PriceBook
) -> None:
    zone = ZoneInfo("Europe/Madrid")  # its clocks were put back on 2026-10-25
    days = [datetime(2026, 10, day, hour, 30, tzinfo=zone) for day in (24, 25, 26) for hour in (0, 23)]
    await put(any_database, *(row(at=day.timestamp()) for day in days))
    figures = make_figures(any_database, catalogue, search={"timezone": "Europe/Madrid"})
    found = await figures.of("search", "2026-10", ["spend"])
    assert [(one["day"], one["cost_usd"]) for one in found["by"]["day"]] == [
        (f"2026-10-{day}", "2") for day in (24, 25, 26)
    ]
    assert (found["days"], found["end"]) == (31, "2026-11-01T00:00:00")


async def test_difficulty_counts_answers_by_the_tier_that_gave_them(
    any_database: Database, catalogue: PriceBook
) -> None:
    await put(
        any_database,
        *(row(difficulty=0.04, backend="small", tier="small") for _ in range(3)),
        row(difficulty=0.05),
        row(difficulty=0.95),
        row(difficulty=1.0, outcome="interrupted"),
        row(difficulty=0.5, outcome="failed"),
        row(difficulty=0.5, kind="shadow"),
        row(difficulty=None),
    )
    mix = (await make_figures(any_database, catalogue).of("search", "1"))["difficulty"]
    assert [step["difficulty"] for step in mix] == [tenth / 10 for tenth in range(11)]
    assert {step["difficulty"]: step["answers"] for step in mix if step["answers"]} == {
        0.0: {"small": 3},
        0.1: {"large": 1},
        1.0: {"large": 2},
    }
    assert (await make_figures(any_database, catalogue).of("chat", "1"))["difficulty"] == []


async def test_a_row_that_another_replaces_counts_no_more(any_database: Database, catalogue: PriceBook) -> None:
    old = row(cost_pico=None)
    await put(any_database, old, row(request_id=old["request_id"], id="again", supersedes=old["id"], cost_pico=USD))
    figures = await make_figures(any_database, catalogue).of("search", "1")
    assert (figures["total"]["requests"], figures["total"]["cost_usd"], figures["total"]["unpriced"]) == (1, "1", 0)
    assert [(tier["cost_usd"], tier["answers"]) for tier in figures["tiers"]] == [("1", 1)]
    assert [(one["cost_usd"], len(one["attempts"])) for one in figures["dearest"]] == [("1", 1)]
    assert figures["latency"][0]["answers"] == 1


async def test_simulated_traffic_is_priced_apart_and_in_nothing_else(database: Database, catalogue: PriceBook) -> None:
    await put(database, row(backend="pretend", model="pretend-large", simulated=True, cost_pico=None))
    figures = await make_figures(database, catalogue, search={"budget": TOTAL}).of("search", "30")
    (line,) = figures["simulated"]
    assert (line["requests"], line["hypothetical_like"]) == (1, "openai/gpt-5")
    assert Decimal(line["hypothetical_usd"]) > 0
    assert (figures["total"]["requests"], figures["total"]["unpriced"]) == (0, 0)
    assert figures["budgets"][0]["standings"][0]["spent_usd"] == "0"
    assert "pretend" not in repr({name: value for name, value in figures.items() if name != "simulated"})


async def test_percentiles_are_durations_that_answers_really_took(any_database: Database, catalogue: PriceBook) -> None:
    large = [row(duration_ms=float(ms), first_byte_ms=6.5) for ms in range(1, 101)]
    few = [row(backend="small", duration_ms=ms) for ms in (30.0, 10.0, 20.0)]
    uncounted = [row(outcome="failed", duration_ms=9e6), row(duration_ms=None), row(attempt=0)]
    await put(any_database, *large, *few, *uncounted)
    assert (await make_figures(any_database, catalogue).of("search", "1"))["latency"] == [
        {"backend": "large", "answers": 100, "p50_ms": 50, "p95_ms": 95, "first_p50_ms": 7},
        {"backend": "small", "answers": 3, "p50_ms": 20, "p95_ms": 30, "first_p50_ms": None},
    ]


async def test_the_dearest_requests_count_all_their_attempts(any_database: Database, catalogue: PriceBook) -> None:
    await put(any_database, *(row(cost_pico=number) for number in range(1, 12)))
    await put(
        any_database,
        row(request_id="req_two", outcome="escalated", cost_pico=2**63 - 1, backend="small", duration_ms=500.0),
        row(request_id="req_two", attempt=2, cost_pico=2**63 - 1, at=NOW - 3599.0, duration_ms=250.0),
    )
    dearest = (await make_figures(any_database, catalogue).of("search", "1"))["dearest"]
    assert [Decimal(one["cost_usd"]) * USD for one in dearest] == [2 * (2**63 - 1), *range(11, 2, -1)]
    first = dearest[0]
    assert (first["id"], first["duration_ms"], first["output_tokens"]) == ("req_two", 1250, 40)
    assert [(one["backend"], one["outcome"]) for one in first["attempts"]] == [("small", "escalated"), ("large", "ok")]


async def test_an_alert_is_told_once_with_what_became_of_it(database: Database, catalogue: PriceBook) -> None:
    said = {"id": "a", "text": "half is gone", "threshold": "50%", "window": "month"}
    payload = orjson.dumps({**said, "key": "key_shop", "spent_usd": "0.5", "limit_usd": "1"}).decode()
    facts = {"team": "search", "created_at": NOW, "payload": payload}
    facts |= {"tries": 0, "last_error": "", "severity": "critical", "dead_at": None, "acknowledged_at": None}
    late = payload.replace("half", "nobody acknowledged: half")
    rows = [
        {**facts, "id": "a", "target": "", "delivered_at": NOW, "acknowledged_at": NOW + 60, "acknowledged_by": "Ada"},
        {**facts, "id": "a/1", "target": "env:ONE", "delivered_at": NOW, "tries": 1},
        {**facts, "id": "a/2", "target": "env:TWO", "delivered_at": None, "tries": 4, "last_error": "answered 503"}
        | {"dead_at": NOW + 9, "payload": late, "created_at": NOW + 5},
        {**facts, "id": "b", "team": "chat", "target": "", "delivered_at": NOW},
    ]
    rows = [{"acknowledged_by": "", **row} for row in rows]
    await database.run(lambda connection: connection.execute(insert(alerts), rows))
    (alert,) = (await make_figures(database, catalogue).of("search", "1"))["alerts"]
    assert (alert["text"], alert["threshold"], alert["at"]) == ("half is gone", "50%", iso(NOW))
    budget = {"window": "month", "per": "key", "who": "key_shop", "unit": "usd", "spent": "0.5", "limit": "1"}
    assert alert["budget"] == budget
    assert (alert["severity"], alert["acknowledged"]) == ("critical", {"at": iso(NOW + 60), "by": "Ada"})
    assert alert["receivers"] == [
        {"target": "env:TWO", "accepted": None, "given_up": True, "tries": 4, "error": "answered 503"},
        {"target": "env:ONE", "accepted": iso(NOW), "given_up": False, "tries": 1, "error": ""},
    ]


async def test_keys_have_their_names_and_backends_their_voices(database: Database, catalogue: PriceBook) -> None:
    voice = {"at": NOW, "request_id": "r", "key_id": "key_shop", "backend": "large"}
    voices = [
        {**voice, "team": team, "score": score} for team, score in (("search", 1.0), ("search", 0.5), ("chat", 0.0))
    ]
    key = {"id": "key_shop", "digest": bytes(32), "team": "search", "name": "Web shop", "scopes": "inference"}
    await database.run(lambda connection: connection.execute(insert(feedback), voices))
    await database.run(lambda connection: connection.execute(insert(keys), [{**key, "created_at": NOW}]))
    await put(database, row(), row(key_id="key_nameless"))
    figures = await make_figures(database, catalogue).of("search", "1")
    assert figures["key_names"] == {"key_shop": "Web shop"}
    assert figures["feedback"] == [{"backend": "large", "score": 0.75, "voices": 2}]


class TickingClock(StoppedClock):
    """Every look at the ledger seems to take a second."""

    def monotonic(self) -> float:
        self.now += 0.5
        return self.now


async def test_those_who_ask_at_the_same_time_share_one_look_at_the_ledger(
    database: Database, catalogue: PriceBook
) -> None:
    figures = make_figures(database, catalogue)
    await asyncio.gather(*(figures.of("search", "30") for _ in range(5)), figures.of("chat", "30"))
    assert figures.computed == 2


async def test_figures_that_took_long_are_shown_again_for_longer(database: Database, catalogue: PriceBook) -> None:
    clock = TickingClock(NOW)
    figures = make_figures(database, catalogue, clock)
    first = await figures.of("search", "30", ["spend"])
    assert first["refresh_s"] == 10  # twenty times half a second
    assert (await figures.of("search", "30", ["spend"]), figures.computed) == (first, 1)
    clock.pass_(first["refresh_s"])
    await figures.of("search", "30", ["spend"])
    assert figures.computed == 2
    quick = make_figures(database, catalogue)
    assert (await quick.of("search", "30"))["refresh_s"] == 5
    await put(database, row())
    assert (await quick.of("search", "30"))["total"]["requests"] == 1


async def test_a_ledger_that_is_away_is_said_so_and_asked_again(database: Database, catalogue: PriceBook) -> None:
    figures = make_figures(database, catalogue)
    await database.run(lambda connection: connection.exec_driver_sql("ALTER TABLE ledger RENAME TO gone"))
    with pytest.raises(LedgerUnavailable):
        await figures.of("search", "30")
    await database.run(lambda connection: connection.exec_driver_sql("ALTER TABLE gone RENAME TO ledger"))
    assert (await figures.of("search", "30"))["total"]["requests"] == 0
    await figures.aclose()


async def test_an_admin_chooses_among_teams_with_a_key_or_a_policy(database: Database, catalogue: PriceBook) -> None:
    await asyncio.to_thread(create, database, "ops")
    assert await make_figures(database, catalogue, search={}, default={}).teams() == ["ops", "search"]


def test_only_the_demo_teams_of_the_demo_organisation_are_marked(database: Database, catalogue: PriceBook) -> None:
    figures = make_figures(
        database, catalogue, **{"demo-search": {"organisation": "demo"}, "demo-app": {}, "search": {}}
    )
    assert figures.invented(["demo-app", "demo-search", "search"]) == ["demo-search"]
