"""The page's words: one for each kind of hit, dates like all others, nothing twice, and what is invented is marked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.conftest import Open
from tests.page.reading import until

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

MODEL = "gpt-5-mini-2026-01-15"


def changed(page: Page, path: str, change: Callable[[dict[str, Any]], None]) -> None:
    def answer(route: Route) -> None:
        reply = route.fetch()
        values = reply.json()
        change(values)
        route.fulfill(response=reply, json=values)

    page.route(path, answer)


@pytest.mark.parametrize(
    ("language", "dates"),
    [
        ("en", ("Nov 30, 2026 23:00 (Europe/Madrid)", "Nov 2, 2026, 09:30:00")),
        ("pt", ("30 de nov. de 2026", "2 de nov.")),
    ],
)
def test_alerts_have_dates_as_the_page_writes_them_and_names_as_they_are(
    visit: Open, language: str, dates: tuple[str, str]
) -> None:
    text = f"Runs until 2026-11-30 23:00 (Europe/Madrid); {MODEL} since 2026-11-02T08:30:00Z"

    def tell(figures: dict[str, Any]) -> None:
        if "alerts" in figures:
            figures["alerts"][0] |= {"text": text, "budget": None}

    opened = visit()
    changed(opened.page, "**/dashboard/data*", tell)
    changed(opened.page, "**/dashboard/viewer", lambda viewer: viewer.update(zones={"search": "Europe/Madrid"}))
    page = opened.enter("lead")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #alerts li")
    said = page.inner_text("#alerts li >> nth=0")
    assert all(one in said for one in (*dates, MODEL))
    assert "2026-11-" not in said
    page.unroute_all(behavior="ignoreErrors")


def test_the_forecast_s_line_meets_the_limit_when_the_text_says_so(visit: Open) -> None:
    ahead = {"total_usd_low": "8", "total_usd": "10", "total_usd_high": "12"}
    ahead |= {
        f"exhausted_at{which}": f"2026-11-{day}T00:00:00Z" for which, day in (("_low", 21), ("", 23), ("_high", 26))
    }

    def warn(figures: dict[str, Any]) -> None:
        figures["at"] = "2026-11-11T00:00:00Z"
        if "budgets" not in figures:
            return
        budget = next(one for one in figures["budgets"] if one["window"] == "month" and one["standings"])
        (standing,) = budget["standings"]
        standing |= {"spent_usd": "2", "used": 0.4, "early": False, "forecast": ahead}
        budget |= {"start": "2026-11-01T00:00:00Z", "end": "2026-12-01T00:00:00Z", "limit": "5"}
        budget["course"] = [["2026-11-05T00:00:00Z", "2"]]
        figures["budgets"] = [budget]

    opened = visit()
    changed(opened.page, "**/dashboard/data*", warn)
    page = opened.enter("lead", "#/budget?period=30")
    page.wait_for_selector("#budgets path.ahead")
    assert "Nov 23, 2026" in page.inner_text("#budgets .warn")
    points = page.eval_on_selector(
        "#budgets path.ahead",
        "(path) => path.getAttribute('d').slice(1).split('L').map((one) => one.split(' ').map(Number))",
    )
    (begin, _), (met, height), (end, _) = points
    days = begin + (end - begin) * 12 / 20  # from the 11th to the 1st are 20 days, to the 23rd 12
    assert met == pytest.approx(days, abs=0.1)
    assert height == pytest.approx(float(page.get_attribute("#budgets line.limit", "y1") or 0), abs=0.1)
    page.unroute_all(behavior="ignoreErrors")


def test_the_log_by_cost_says_what_is_specific_to_each_request(visit: Open) -> None:
    page = visit().enter("lead", "#/requests?period=30&sort=cost")
    page.wait_for_selector("#log tbody tr .quiet")
    rows = page.eval_on_selector_all("#log tbody td:nth-child(2)", "(all) => all.map((cell) => cell.textContent)")
    assert any(re.match(r".*Difficulty 0\.\d\d\. ", row) for row in rows)
    assert not any("The gateway chose" in row or "The client named" in row for row in rows)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", r"Difficulty 0\.\d\d\. \w+ failed"),
        ("es", r"Dificultad 0,\d\d\. \w+ falló"),
        ("pt", r"Dificuldade 0,\d\d\. \w+ falhou"),
    ],
)
def test_the_reasons_of_a_cost_are_whole_sentences(visit: Open, language: str, expected: str) -> None:
    page = visit().enter("lead", "#/budget?period=30")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #dearest td")
    reasons = [one.replace("\xa0", " ") for one in page.locator("#dearest td:nth-child(2)").all_inner_texts()]
    assert any(re.match(expected, one) for one in reasons), reasons
    assert "[object" not in page.inner_text("main")


@pytest.mark.parametrize(
    ("language", "expected"),
    [("en", ["1,234", "$1,234.50"]), ("es", ["1.234", "1.234,50 $"]), ("pt", ["1.234", "US$ 1.234,50"])],
)
def test_figures_are_written_as_in_the_servers_sentences(visit: Open, language: str, expected: list[str]) -> None:
    def enlarge(figures: dict[str, Any]) -> None:
        if "total" in figures:
            figures["total"] |= {"cost_usd": "1234.5", "requests": 1234}

    opened = visit()
    changed(opened.page, "**/dashboard/data*", enlarge)
    page = opened.enter("lead")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #brief .tile")
    found = page.inner_text("#brief").replace("\xa0", " ")
    assert all(one in found for one in expected), found
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize(("language", "word"), [("en", "joined"), ("es", "compartida"), ("pt", "compartilhada")])
def test_a_joined_request_has_the_glossary_s_word_in_every_view(visit: Open, language: str, word: str) -> None:
    opened = visit()
    page = opened.enter("lead", "#/requests?period=30&cache=join")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #log tbody tr")
    assert word in page.inner_text("#log tbody tr >> nth=0")
    assert page.input_value("#filters [name=cache]") == "join"
    assert page.inner_text("#filters option[value=join]") == word
    opened.go("#/budget?period=30")
    page.wait_for_selector("#cache tbody tr")
    assert word in page.inner_text("#cache").lower()
    opened.go("#/requests?period=30&cache=join")
    page.click("#log tbody a >> nth=0")
    page.wait_for_selector("#one dl")
    assert word in page.inner_text("#one dl").lower()
    assert word in page.inner_text("#one .words").lower()


def test_the_demo_history_is_marked_in_every_view(visit: Open) -> None:
    opened = visit()
    changed(opened.page, "**/dashboard/viewer", lambda viewer: viewer.update(invented=["search"]))
    page = opened.enter("lead", "#/requests?period=30")
    page.wait_for_selector("#notices .notice")
    page.click("#log tbody a >> nth=0")
    page.wait_for_selector("#one dl")
    assert "invented" in page.inner_text("#notices")
    opened.go("#/overview?period=30")
    page.wait_for_selector("#brief .tile")
    until(
        page, "!document.querySelector('#notices').textContent.includes('invented')"
    )  # the figures say that they are real
    page.unroute_all(behavior="ignoreErrors")


def test_names_that_every_javascript_object_has_are_shown_as_they_are(visit: Open) -> None:
    """A policy may be called `constructor`, and a client may call its session so."""

    def rename(figures: dict[str, Any]) -> None:
        for row in figures.get("teams", ()):
            row["team"] = row["team"].replace("search", "constructor")

    opened = visit()
    changed(opened.page, "**/dashboard/teams*", rename)
    changed(opened.page, "**/dashboard/viewer", lambda viewer: viewer.update(teams=["constructor", "search"]))
    page = opened.enter("admin", "#/teams?period=30")
    page.wait_for_selector("#teams tbody tr:has-text('constructor')")
    cells = "[...document.querySelector('#teams tr:has(a[href*=constructor])').cells].map((one) => one.innerText)"
    until(page, f"{cells}.slice(2, 4).join() === 'none,–'")
    opened.go("#/requests?team=constructor&period=30")
    page.wait_for_selector("#log p:has-text('No request matches')")
    changed(page, "**/dashboard/groups*", lambda found: found["rows"][0].update(session="__proto__"))
    opened.go("#/models?team=search&period=30&by=session")
    page.wait_for_selector("#where a:text-is('__proto__')")
    opened.go("#/requests?team=search&period=30&session=constructor")
    until(page, "document.querySelector('#crumbs').textContent.includes('Session constructor')")
    assert not opened.complaints
    page.unroute_all(behavior="ignoreErrors")
