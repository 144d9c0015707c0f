"""What the page says when there is nothing, when the key is no good, and when nobody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import Dashboard, Open
from tests.page.reading import until

if TYPE_CHECKING:  # installed by `make test-page` alone
    from playwright.sync_api import Route


def test_a_team_without_requests_is_told_how_to_begin(visit: Open) -> None:
    opened = visit()
    page = opened.enter("admin")
    page.wait_for_selector("#empty:not([hidden])")
    assert page.is_hidden(".used")
    assert "OPENAI_BASE_URL=" in page.inner_text("#example")
    assert page.inner_text("#alerts") == "There are no alerts."
    opened.go("#/budget")
    until(page, "document.querySelector('#budgets').textContent === 'The policy of this team sets no budget.'")
    opened.go("#/requests")
    until(page, "document.querySelector('#log').textContent === 'No request matches.'")
    assert opened.complaints == []


@pytest.mark.parametrize(("key", "said"), [("old", "expired"), ("wrong", "key"), ("a key", "spaces"), ("ü", "special")])
def test_a_key_that_is_no_good_is_refused_with_the_reason(
    visit: Open, dashboard: Dashboard, key: str, said: str
) -> None:
    page = visit().page
    page.goto(dashboard.address)
    page.fill("#key", dashboard.keys.get(key, key))
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#refused').textContent !== ''")
    assert said in page.inner_text("#refused").lower()
    assert page.is_hidden("#figures")
    assert page.evaluate("document.activeElement.id") == "key"
    assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_is_revoked_meanwhile_closes_the_figures(visit: Open, dashboard: Dashboard) -> None:
    page = visit().enter("leaving")
    page.wait_for_selector("#brief .tile")
    listed = dashboard.gateway.json("keys", "list", "--team", "search")
    secret = dashboard.keys["leaving"]
    (id,) = [one["id"] for one in listed if one["id"] == _id_of(dashboard, secret)]
    dashboard.gateway.run("keys", "revoke", id)
    while page.is_hidden("#door"):  # within a second everyone knows
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(200)
    assert page.locator("#figures data").count() == 0
    assert page.inner_text("#refused") != ""


def _id_of(dashboard: Dashboard, secret: str) -> str:
    from sqlalchemy import create_engine, select

    from gateway.policy.keys import digest
    from gateway.state.sql.tables import keys

    engine = create_engine(f"sqlite:///{dashboard.gateway.home}/data/ledger.sqlite")
    with engine.connect() as connection:
        found = connection.scalar(select(keys.c.id).where(keys.c.digest == digest(secret)))
    engine.dispose()
    return str(found)


def test_a_gateway_that_is_away_leaves_what_was_known_and_says_so(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    spent = page.inner_text("#brief .tile:first-child")
    opened.context.set_offline(True)
    page.select_option("#period", "7")
    page.wait_for_selector("#status .bad")
    assert "does not answer" in page.inner_text("#status")
    assert "These figures are from" in page.inner_text("#status")
    assert page.inner_text("#brief .tile:first-child") == spent
    opened.context.set_offline(False)
    page.wait_for_selector("#status .bad", state="detached", timeout=15_000)


def test_a_refusal_of_the_server_is_told_in_its_own_words(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    body = '{"error": {"message": "The ledger cannot be read; check that its database is up."}}'
    page.route("**/dashboard/data*", lambda route: route.fulfill(status=503, body=body))
    page.select_option("#period", "7")
    page.wait_for_selector("#status .bad")
    assert "The ledger cannot be read" in page.inner_text("#status")


def test_nobody_is_asked_while_nobody_looks(visit: Open) -> None:
    opened = visit()
    page = opened.page
    page.clock.install()
    opened.enter("lead")
    until(page, "![...document.querySelectorAll('#answers .value')].some((one) => one.textContent === '…')")
    page.wait_for_selector("#brief .tile")
    asked = lambda: len([address for address in opened.asked if "/dashboard/data" in address])  # noqa: E731
    before = asked()
    page.evaluate("""() => {
      Object.defineProperty(document, "hidden", { get: () => window.away, configurable: true });
      window.away = true;
      document.dispatchEvent(new Event("visibilitychange"));
    }""")
    page.clock.run_for(600_000)
    assert asked() == before
    with page.expect_response("**/dashboard/data*"):
        page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    until(page, "document.querySelector('#status').textContent === ''")
    with page.expect_response("**/dashboard/data*"):
        page.clock.run_for(300_000)


def test_a_refused_period_shows_no_figures_of_the_period_before(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    opened.go("#/overview?period=2999-01")
    page.wait_for_selector("#status .bad")
    assert "has not begun" in page.inner_text("#status")
    assert page.locator("#figures :is(data, svg, tbody)").count() == 0
    assert page.text_content("#moment") == ""
    assert page.is_hidden("#figures")
    opened.go("#/overview?period=7")
    page.wait_for_selector("#brief .tile")


def test_an_unmeasured_cache_an_invented_history_and_a_decimal_comma_in_spanish(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.route("**/dashboard/data*", _changed)
    page.select_option("#language", "es")
    page.wait_for_selector("html[lang=es] #answers .answer:has-text('6,1 días')")
    assert "no medido" in page.inner_text("#answers")
    assert "estas peticiones son inventadas" in page.inner_text("#notices")
    page.unroute_all(behavior="ignoreErrors")


def _changed(route: Route) -> None:
    reply = route.fetch()
    figures = reply.json()
    pace = {"days": 6.1, "usd": "1", "until": "2027-01-31"}
    changes = {"wrong_hits": None, "invented": True, "pace": pace}
    route.fulfill(response=reply, json=figures | {name: value for name, value in changes.items() if name in figures})


def test_a_kind_of_question_with_too_many_wrong_hits_and_a_burning_objective_stand_out(visit: Open) -> None:
    def worse(route: Route) -> None:
        reply = route.fetch()
        figures = reply.json()
        if "objectives" in figures:
            wrong = {"checked": 40, "wrong_of_lookups": 0.05, "interval": [0.02, 0.09]}
            figures["measured_classes"] = {
                "en/text/opening": wrong,
                "es/text/opening": {**wrong, "wrong_of_lookups": 0},
            }
            (every,) = figures["objectives"]
            facts = {"state": "burning", "quality": 0.95, "error_budget_left": -0.6667, "burn_rate": 2.5, "judged": 120}
            figures["objectives"] = [every, {**every, **facts, "class": "en/text/opening"}]
        route.fulfill(response=reply, json=figures)

    opened = visit()
    opened.page.route("**/dashboard/data*", worse)
    page = opened.enter("lead", "#/budget?period=30")
    page.wait_for_selector("#cache table .bad")
    assert page.inner_text("#cache table .bad") == "5%, at most 9%"
    assert page.locator("#cache table .bad").count() == 1
    assert page.inner_text("#cache tr:has-text('es/text/opening')").split()[-4:] == ["0%,", "at", "most", "9%"]
    row = page.inner_text("#quality tbody tr >> nth=1").split("\t")
    assert row == ["en/text/opening", "burning", "95%", "-66.7%", "2.5×", "120"]
    assert page.locator("#quality .badge.near").count() == 1
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize(("zones", "label"), [({"search": "Asia/Tokyo"}, "GMT+9"), ({}, "UTC")])
def test_times_are_in_the_zone_of_the_team(visit: Open, zones: dict[str, str], label: str) -> None:
    opened = visit()

    def zoned(route: Route) -> None:
        reply = route.fetch()
        route.fulfill(response=reply, json=reply.json() | {"zones": zones})

    opened.page.route("**/dashboard/viewer", zoned)
    page = opened.enter("lead", "#/requests?period=30")
    page.wait_for_selector("#log tbody tr")
    assert page.inner_text("#log tbody tr >> nth=0").count(label) == 1
    opened.go("#/overview?period=30")
    until(page, f"document.querySelector('#moment').textContent.includes('{label};')")
    page.unroute_all(behavior="ignoreErrors")


def test_signing_out_keeps_the_language(visit: Open) -> None:
    page = visit().enter("lead")
    page.select_option("#language", "es")
    page.wait_for_selector("html[lang=es] #brief .tile")
    page.click("#leave")
    page.reload()
    page.wait_for_selector("html[lang=es] #door:not([hidden])")


def test_requests_without_an_end_user_are_one_click_away(visit: Open) -> None:
    page = visit().enter("lead", "#/models?period=30&by=end_user")
    page.click("#where a:text-is('none')")
    until(page, "location.hash.includes('end_user=%28none%29')")
    until(page, "document.querySelector('#crumbs').textContent.includes('End user none')")
