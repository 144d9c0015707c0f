"""Every figure on the page is the one that `thriftgate usage --json` says for the same period."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import orjson
import pytest
from sqlalchemy import create_engine, select

from gateway.state.sql.tables import ledger
from tests.page.conftest import Dashboard, Open, Visit
from tests.page.reading import amounts, table, tiles, until, written

if TYPE_CHECKING:
    from playwright.sync_api import Page


COMMAND = ("model", "backend", "day")
"""Groupings that the command is asked for; the others come from the API, which says the same in less time."""


def usage(dashboard: Dashboard, figures: dict[str, Any], by: str = "model") -> dict[str, Any]:
    """What the gateway says of the period that the page shows; nobody asks for this team meanwhile."""
    return _usage(dashboard, figures["team"], figures["since"], by)


@cache
def _usage(dashboard: Dashboard, team: str, since: str, by: str) -> dict[str, Any]:
    found: dict[str, Any]
    if by in COMMAND:
        found = dashboard.gateway.json("usage", "--team", team, "--since", since, "--by", by, "--savings")
    else:
        asked = Request(f"{dashboard.gateway.base}/v1/usage?{urlencode({'since': since, 'by': by})}")
        asked.add_header("authorization", f"Bearer {dashboard.keys['lead']}")
        with urlopen(asked, timeout=10) as reply:
            found = orjson.loads(reply.read())
    return found


def shown(visit: Visit, part: str, days: int = 30) -> dict[str, Any]:
    """The figures that came over the wire for the page in sight, when those with `part` have come."""
    figures: dict[str, Any] = {}
    while part not in figures:
        visit.page.wait_for_timeout(10)
        found = [orjson.loads(body) for body in visit.bodies if f'"days":{days},' in body]
        figures = {name: value for body in found for name, value in body.items()}
        figures["key_names"] = {id: name for body in found for id, name in body["key_names"].items()}
    return figures


LAST = {"overview": "simulated", "budget": "feedback", "models": "latency"}
"""The part of each view that comes last."""


def open_lead(visit: Open, view: str = "overview", query: str = "") -> tuple[Visit, Page, dict[str, Any]]:
    opened = visit()
    page = opened.enter("lead", f"#/{view}?period=30{query}")
    figures = shown(opened, LAST[view])
    until(page, FULL[view])
    return opened, page, figures


FULL = {
    "overview": "document.querySelectorAll('#brief .tile').length === 6"
    " && !document.querySelector('#answers').textContent.includes('…')",
    "budget": "['#feedback', '#dearest'].every((id) => document.querySelector(id).hasChildNodes())",
    "models": "['#latency', '#where'].every((id) => document.querySelector(id).hasChildNodes())",
}
"""What is true when a view is shown whole."""


def test_the_tiles_are_the_total_and_the_savings_statement(visit: Open, dashboard: Dashboard) -> None:
    _, page, figures = open_lead(visit)
    said = usage(dashboard, figures)
    total, (statement,) = said["total"], said["savings"]["teams"]
    bought = [total[name] for name in ("input_tokens", "cached_tokens", "cache_write_tokens")]
    made = [total[name] for name in ("output_tokens", "reasoning_tokens")]
    assert total["requests"] > 400
    assert Decimal(total["cost_usd"]) > 1
    assert tiles(page) == {
        "Spent": [total["cost_usd"]],
        "Saved": [statement["saved_usd"]],
        "Requests": [str(total["requests"]), str(total["attempts"])],
        "From the cache": [str(total["cache_answers"])],
        "Tokens bought": [str(sum(bought) + sum(made)), str(sum(bought)), str(sum(made))],
        "Failed": [str(total["failed"]), str(total["interrupted"]), str(total["attempts"])],
    }
    hits = Decimal(100 * total["cache_answers"]) / total["requests"]
    assert page.inner_text("#brief .tile:nth-child(4) dd") == f"{hits:.0f}%"


@pytest.mark.parametrize("by", ["backend", "model", "key", "tag"])
def test_each_grouping_is_the_command_s(visit: Open, dashboard: Dashboard, by: str) -> None:
    _, page, figures = open_lead(visit, "models", f"&by={by}")
    rows = usage(dashboard, figures, by)["rows"]
    names = {**figures["key_names"], "(cache)": "from the cache", "": "none"}
    expected = {
        names.get(row[by], row[by]): [
            row["cost_usd"],
            str(row["attempts"]),
            str(row["cache_answers"]),
            str(row["input_tokens"] + row["cached_tokens"] + row["cache_write_tokens"]),
            str(row["output_tokens"] + row["reasoning_tokens"]),
            str(row["failed"]),
        ]
        for row in rows
    }
    found = table(page, "#where")
    assert {row[0]: row[1:] for row in found} == expected
    assert len(found) == len(rows) > 1
    costs = [Decimal(row[1]) for row in found]
    assert costs == sorted(costs, reverse=True)


def test_groups_lead_to_smaller_groups_and_to_requests(visit: Open, dashboard: Dashboard) -> None:
    _, page, _ = open_lead(visit, "models", "&by=key")
    page.click("#where tbody tr:has-text('Web shop') a")
    until(page, "document.querySelector('#where thead th').textContent === 'End user'")
    assert page.inner_text("#crumbs").endswith("› Key Web shop")
    page.select_option("#by", "model")
    until(page, "document.querySelector('#where thead th').textContent === 'Model'")
    page.click("#where tbody a >> nth=0")
    page.wait_for_selector("#log tbody tr")
    assert page.input_value("#filters [name=key]") == "key_shop"
    assert {row[7] for row in table(page, "#log")} == {"Web shop"}


def test_the_days_are_the_command_s_and_quiet_ones_are_zero(visit: Open, dashboard: Dashboard) -> None:
    _, page, figures = open_lead(visit)
    rows = {row["day"]: row for row in usage(dashboard, figures, "day")["rows"]}
    found = table(page, "#days-table")
    assert len(found) == 30
    for day, *values in found:
        row = rows.pop(day, defaultdict(lambda: 0, cost_usd="0", saved_usd="0"))
        counts = [str(row[name]) for name in ("requests", "cache_answers")]
        assert values == [row["cost_usd"], *counts, row["saved_usd"], str(row["failed"])]
    assert rows == {}


def test_today_is_shown_by_the_hour(visit: Open, dashboard: Dashboard) -> None:
    opened, page, _ = open_lead(visit)
    page.select_option("#period", "1")
    until(page, "document.querySelector('#plot-title').textContent === 'Spend per hour'")
    figures = shown(opened, "by", days=1)
    rows = {row["hour"][:16].replace("T", " "): row["cost_usd"] for row in usage(dashboard, figures, "hour")["rows"]}
    found = {row[0]: row[1] for row in table(page, "#days-table")}
    assert rows.items() <= found.items()
    assert {Decimal(cost) for hour, cost in found.items() if hour not in rows} <= {Decimal(0)}


def test_budgets_stand_as_the_command_says(visit: Open, dashboard: Dashboard) -> None:
    _, page, figures = open_lead(visit, "budget")
    said = [one for one in usage(dashboard, figures)["budgets"] if one["team"] == "search"]
    alone = [one for one in said if one["per"] == "team"]
    cards = page.eval_on_selector_all(
        "#budgets .budget",
        "(all) => all.map((card) => [...card.querySelectorAll('.spent data')].map((one) => one.value))",
    )
    assert [card for card in cards if card] == [
        [str(one[f"{name}_{'usd' if 'spent_usd' in one else 'tokens'}"]) for name in ("spent", "limit")]
        for one in alone
    ]
    each = [one for one in said if one["per"] == "key"]
    rows = table(page, "#budgets .scroll")
    assert [row[:2] for row in rows] == [[figures["key_names"][one["subject"]], one["spent_usd"]] for one in each]
    told = page.eval_on_selector_all(
        "#budgets p.ahead", "(all) => all.map((one) => [...one.querySelectorAll('data')].map((each) => each.value))"
    )
    # Of a budget that is used up the page says what that means instead: late in a day that is so of the day's.
    ahead = [one["forecast"] for one in alone if one["forecast"] and one["end"] and one["used"] < 1]
    assert len(told) == len(ahead) > 0
    for (mid, low, high), forecast in zip(told, ahead, strict=True):
        unit = "usd" if "total_usd" in forecast else "tokens"
        assert Decimal(low) <= Decimal(mid) <= Decimal(high)
        # The command forecasts from a moment later.
        assert float(mid) == pytest.approx(float(forecast[f"total_{unit}"]), rel=0.1)


def test_the_savings_statement_is_the_command_s_with_its_method(visit: Open, dashboard: Dashboard) -> None:
    _, page, figures = open_lead(visit, "budget")
    (said,) = usage(dashboard, figures)["savings"]["teams"]
    rows = table(page, "#savings .scroll")
    overhead = [usd for usd in said["overhead_usd"].values() if Decimal(usd)]
    assert [row[1] for row in rows] == [said["baseline_usd"], said["cost_usd"], *overhead, said["saved_usd"]]
    page.click("#savings summary")
    method = page.eval_on_selector_all("#savings li", "(all) => all.map((one) => one.textContent)")
    assert method == figures["savings"]["method"]


def test_hits_are_shown_by_kind_of_question_and_quality_with_its_error_budget(visit: Open) -> None:
    page = visit().enter("lead", "#/budget?period=30")
    table = page.locator("#cache table").nth(1)
    table.wait_for()
    assert page.inner_text("#cache table:nth-of-type(1) tbody").count("$") == 3
    assert table.locator("tbody tr").all_inner_texts()[0].startswith("en/text/opening\t")
    assert table.locator("tbody td").all_inner_texts()[2] == "not measured"
    page.wait_for_selector("#quality table")
    assert page.inner_text("#quality tbody tr").split("\t")[:3] == ["all", "unknown", "–"]
    assert "Objective: 97% of judged answers" in page.inner_text("#quality")


def test_wrong_hits_are_told_with_their_interval(visit: Open, dashboard: Dashboard) -> None:
    _, page, figures = open_lead(visit, "budget")
    (said,) = usage(dashboard, figures)["wrong_hits"]
    assert said["team"] == figures["team"]
    assert said["lookups"] == 4000
    assert figures["wrong_hits"] == {name: value for name, value in said.items() if name != "team"}
    shown = page.eval_on_selector_all("#cache #wrong-hits data", "(all) => all.map((each) => each.value)")
    assert [float(value) for value in shown] == pytest.approx([said["wrong_of_lookups"], 2, 60])
    low, high = (f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%" for share in said["interval"])
    text = page.inner_text("#wrong-hits")
    expected = f"Wrong hits measured: 0.33% of semantic look-ups (95%: {low} to {high}; the policy allows 1%), 2 of 60 "
    assert text.startswith(f"{expected}checked hits")
    assert text.endswith("Reported as wrong by clients: 1.")


def test_answers_by_tier_and_cache_add_up_to_the_command_s(visit: Open, dashboard: Dashboard) -> None:
    opened, page, figures = open_lead(visit, "models")
    tiers = {row["tier"]: row for row in usage(dashboard, figures, "tier")["rows"]}
    kinds = {row["cache"]: row for row in usage(dashboard, figures, "cache")["rows"]}
    mix = {row[0].lower(): row for row in table(page, "#mix")}
    for tier in ("small", "large", "hosted"):
        lost = tiers[tier]["failed"] + sum(one["escalated"] for one in figures["tiers"] if one["tier"] == tier)
        assert mix[tier][3] == tiers[tier]["cost_usd"]
        assert int(mix[tier][1]) == tiers[tier]["attempts"] - lost
    assert int(mix["cache"][1]) == tiers["(cache)"]["cache_answers"]
    words = {
        "exact": "exact hit: the same request was answered before",
        "semantic": "semantic hit: a question with the same meaning, verified",
        "join": "joined: shared with an identical request in progress",
    }
    expected = {
        words[kind]: [str(row["cache_answers"]), row["saved_usd"]] for kind, row in kinds.items() if kind in words
    }
    opened.go("#/budget?period=30")
    page.wait_for_selector("#cache table")
    assert {row[0]: row[1:] for row in table(page, "#cache")} == expected


def test_difficulty_latency_and_the_dearest_are_those_of_the_rows(visit: Open, dashboard: Dashboard) -> None:
    opened, page, figures = open_lead(visit, "models")
    engine = create_engine(f"sqlite:///{dashboard.gateway.home}/data/ledger.sqlite")
    with engine.connect() as connection:
        rows = connection.execute(select(ledger).where(ledger.c.team == "search")).all()
    engine.dispose()
    since = page.evaluate("(text) => Date.parse(text) / 1000", figures["since"])
    rows = [row for row in rows if row.at >= since]
    by_difficulty = dict.fromkeys(range(11), 0)
    times = defaultdict(list)
    costs: dict[str, int] = defaultdict(int)
    for row in rows:
        costs[row.request_id] += row.cost_pico
        if row.attempt and row.outcome in ("ok", "interrupted"):
            by_difficulty[math.floor(row.difficulty * 10 + 0.5)] += 1
        if row.attempt and row.outcome in ("ok", "escalated"):
            times[row.backend].append(row.duration_ms)
    page.click("#difficulty summary")
    answers = [sum(map(int, row[1:])) for row in table(page, "#difficulty .scroll")]
    assert answers == list(by_difficulty.values())
    for backend, _, half, most, count in table(page, "#latency"):
        taken = sorted(times.pop(backend))
        assert int(count) == len(taken)
        for text, percent in ((half, 50), (most, 95)):
            whole_ms = math.floor(taken[math.ceil(len(taken) * percent / 100) - 1] + 0.5)  # as the page is told it
            assert text == (f"{whole_ms}ms" if whole_ms < 1000 else f"{whole_ms / 1000 + 1e-9:.2f}s")
    assert not times
    opened.go("#/budget?period=30")
    page.wait_for_selector("#dearest data")
    dearest = page.eval_on_selector_all("#dearest th data", "(all) => all.map((one) => one.value)")
    assert [Decimal(usd) * 10**12 for usd in dearest] == sorted(costs.values(), reverse=True)[:10]


def test_whatever_is_rounded_is_rounded_from_what_is_exact(visit: Open) -> None:
    opened, page, _ = open_lead(visit)
    for view, ready in (("budget", "#dearest data"), ("models", "#where data"), ("requests", "#log data")):
        opened.go(f"#/{view}?period=30")
        page.wait_for_selector(ready)
    found = amounts(page)
    assert len(found) > 100
    assert [(exact, text) for exact, text in found if text != written(exact)] == []


def test_alerts_are_told_with_what_became_of_them(visit: Open, dashboard: Dashboard) -> None:
    _, page, _ = open_lead(visit)
    text = page.inner_text("#alerts")
    assert "Team search has spent 0.55 USD, 50% or more of its monthly budget of 1 USD." in text
    assert "OPS_HOOK not reached after 4 tries: answered 503" in text


def test_the_figures_follow_the_ledger_without_a_reload(visit: Open, dashboard: Dashboard) -> None:
    opened = visit()
    page = opened.enter("new")
    page.wait_for_selector("#empty:not([hidden])")
    page.click("#try")
    page.fill("#prompt", "Which animal says meow?")
    page.click("dialog button[type=submit]")
    page.wait_for_selector("#said .answer")
    page.keyboard.press("Escape")
    page.wait_for_selector("#empty", state="hidden", timeout=15_000)
    said = dashboard.gateway.json("usage", "--team", "newcomer")["total"]
    assert tiles(page)["Requests"] == [str(said["requests"]), str(said["attempts"])] == ["1", "1"]
    assert tiles(page)["Spent"] == [said["cost_usd"]]


def test_the_log_lists_the_requests_of_the_chosen_period(visit: Open) -> None:
    page = visit().enter("lead", "#/overview")
    with page.expect_request(lambda one: "/dashboard/requests?" in one.url) as asked:
        page.click("nav a[href*=requests]")
    assert "period=month" in asked.value.url  # what the control of periods shows
    with page.expect_request(lambda one: "/dashboard/requests?" in one.url) as asked:
        page.select_option("#period", "7")
    assert "period=7" in asked.value.url
