"""A team sees its own figures; the page asks nobody but its gateway and runs nothing but its own scripts."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.page import traffic
from tests.page.conftest import Dashboard, Open
from tests.page.reading import until


def test_nothing_of_another_team_reaches_page_or_wire(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead", "#/overview?period=366")
    until(page, "document.querySelector('#moment').textContent.includes('2025 to')")
    for address, ready in VIEWS:
        opened.go(address)
        page.wait_for_selector(ready)
    page.click("#log a >> nth=0")
    page.wait_for_selector("#one .words")
    assert page.is_hidden("#team-choice")
    assert page.is_hidden("#nav [data-to=teams]")
    page.evaluate("document.querySelectorAll('svg').forEach((one) => one.remove())")  # coordinates are figures as well
    seen = page.content() + "".join(opened.bodies)
    assert len(opened.bodies) > 20
    assert [secret for secret in traffic.FOREIGN if secret in seen] == []


VIEWS = (
    ("#/budget?period=366", "#dearest td"),
    ("#/models?period=366&by=key", "#where td"),
    ("#/models?period=366&by=session", "#where td"),
    ("#/requests?period=366&key=key_chat", "#log p"),
    ("#/requests?period=366", "#log td"),
)


def test_a_link_to_another_team_s_request_or_team_shows_nothing_of_it(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead", "#/request/r_hush")
    page.wait_for_selector("#one .bad")
    assert "There is no such request" in page.inner_text("#one")
    for view in ("overview", "requests", "models", "teams"):
        opened.go(f"#/{view}?team={traffic.CHAT}")
        page.wait_for_timeout(300)
    seen = page.inner_text("#figures") + "".join(body for body in opened.bodies if body.startswith("{"))
    assert "13.37" not in seen
    assert "Chat bot" not in seen


def test_asking_for_another_team_is_refused_with_the_reason(visit: Open, dashboard: Dashboard) -> None:
    opened = visit()
    page = opened.enter("lead")
    status, text = page.evaluate(
        """async ([key, team]) => {
          const found = await fetch(`dashboard/data?team=${team}`, { headers: { authorization: `Bearer ${key}` } });
          return [found.status, await found.text()];
        }""",
        [dashboard.keys["lead"], traffic.CHAT],
    )
    assert status == 403
    assert "13.37" not in text


def test_the_other_team_sees_its_own(visit: Open) -> None:
    page = visit().enter("chat")
    page.wait_for_selector("#brief .tile")
    assert page.inner_text("#title") == f"Team {traffic.CHAT}"
    assert page.locator("#brief data[value^='13.37']").count() == 1
    assert "Web shop" not in page.content()


def test_an_admin_sees_all_teams_and_leads_to_one(visit: Open) -> None:
    page = visit().enter("admin", "#/teams?period=30")
    page.wait_for_selector("#teams tbody tr")
    rows = dict(
        page.eval_on_selector_all(
            "#teams tbody tr",
            "(all) => all.map((row) => [row.cells[0].innerText, row.cells[1].querySelector('data').value])",
        )
    )
    assert rows[traffic.CHAT].startswith("13.37")
    page.click(f"#teams a:text-is('{traffic.SEARCH}')")
    until(page, f"document.querySelector('#title').textContent === 'Team {traffic.SEARCH}'")
    page.wait_for_selector("#brief .tile")
    assert page.evaluate("location.hash") == f"#/overview?period=30&team={traffic.SEARCH}"
    names = page.eval_on_selector_all("#team option", "(all) => all.map((one) => one.value)")
    assert {"ops", traffic.CHAT, traffic.SEARCH, "newcomer"} <= set(names)
    page.select_option("#team", traffic.CHAT)
    until(page, f"document.querySelector('#title').textContent === 'Team {traffic.CHAT}'")
    page.wait_for_selector("#brief data[value^='13.37']")


def test_one_team_s_figures_never_stand_below_another_team_s_name(visit: Open) -> None:
    opened = visit()
    page = opened.enter("admin", f"#/overview?team={traffic.CHAT}&period=30")
    page.wait_for_selector("#brief data[value^='13.37']")
    page.route("**/dashboard/data*", lambda route: None)  # the answer does not come
    page.select_option("#team", traffic.SEARCH)
    until(page, f"document.querySelector('#title').textContent === 'Team {traffic.SEARCH}'")
    assert "13.37" not in page.inner_text("#figures")
    assert page.locator("#figures :is(data, rect)").count() == 0


def test_an_inference_key_sees_its_own_requests_alone(visit: Open) -> None:
    opened = visit()
    page = opened.enter("app", "")
    page.wait_for_selector("#log p")
    assert page.eval_on_selector_all("#nav a", "(all) => all.filter((one) => one.checkVisibility()).length") == 1
    assert "its own requests only" in page.inner_text("#log")
    assert opened.complaints == []


def test_forgetting_the_key_empties_the_page(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    page.click("#leave")
    assert page.is_visible("#door")
    assert page.evaluate("sessionStorage.length + localStorage.length + document.cookie.length") == 0
    assert page.locator("#figures :is(data, svg, tbody, .card.answer, #one > *)").count() == 0
    assert "search" not in page.content()
    page.reload()
    assert page.is_visible("#door")


def test_only_this_gateway_is_asked_and_no_key_stands_in_an_address(visit: Open, dashboard: Dashboard) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    page.click("#answers a >> nth=-1")
    opened.go("#/requests")
    page.wait_for_selector("#log a")
    page.click("#log a >> nth=0")
    page.wait_for_selector("#one .words")
    assert {urlsplit(address).netloc for address in opened.asked} == {urlsplit(dashboard.gateway.base).netloc}
    assert not any(key in address for address in opened.asked for key in dashboard.keys.values())
    assert opened.complaints == []


def test_what_clients_wrote_stays_text(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    opened.go("#/models?period=30&by=tag")
    until(page, "document.querySelector('#where thead th')?.textContent === 'Tag'")
    assert traffic.HOSTILE in page.inner_text("#where")
    opened.go("#/requests?period=30&key=key_help")
    page.wait_for_selector("#log a")
    assert traffic.HOSTILE in page.inner_text("#log")
    opened.go(f"#/requests?period=30&model={traffic.HOSTILE}")
    until(page, "document.querySelector('#log').textContent.includes('No request matches')")
    opened.go("#/request/r_hostile")
    page.wait_for_selector("#one .words")
    assert page.inner_text("#one").count(traffic.HOSTILE) >= 3
    assert page.locator("#figures img").count() == 0
    assert opened.complaints == []


def test_a_script_in_the_page_does_not_run(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.evaluate(
        """() => {
          const inline = document.createElement("script");
          inline.textContent = "window.ran = true";
          const foreign = document.createElement("script");
          foreign.src = "http://127.0.0.1:9/x.js";
          document.body.append(inline, foreign);
        }"""
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.ran") is None
    assert len([said for said in opened.complaints if "Content Security Policy" in said]) == 2


def test_an_admin_goes_down_from_the_organisation_to_a_request_and_up_again(visit: Open) -> None:
    page = visit().enter("admin", "#/teams?period=30")
    assert page.inner_text("#crumbs") == "Organisation (all teams)"
    page.click("#teams a:text-is('search')")
    page.wait_for_selector("#answers .card")
    assert page.inner_text("#crumbs") == "Organisation (all teams) › Team search"
    page.click("#nav [data-to=models]")
    page.select_option("#by", "key")
    page.click("#where a:text-is('Web shop')")
    page.click("#where a:text-is('eu_someone')")
    page.click("#where a:text-is('trip-1')")
    page.click("#log tbody a")
    page.wait_for_selector("#one .headline")
    levels = [
        *("Organisation (all teams)", "Team search", "Key Web shop", "End user eu_someone", "Session trip-1"),
        "Request r_trip",
    ]
    page.wait_for_selector("#crumbs :text('Request r_trip')")
    assert page.inner_text("#crumbs").split(" › ") == levels

    for place in range(len(levels) - 2, -1, -1):
        page.click(f"#crumbs a >> nth={place}")
        page.wait_for_selector(f"#crumbs [aria-current]:text-is('{levels[place]}')")
        assert page.inner_text("#crumbs").split(" › ") == levels[: place + 1]
    assert page.inner_text("#title") == "All teams"


def test_a_key_of_one_team_begins_with_its_team(visit: Open) -> None:
    page = visit().enter("lead", "#/requests?period=30&key=key_shop")
    page.wait_for_selector("#crumbs [aria-current]:text-is('Key Web shop')")
    assert page.inner_text("#crumbs") == "Team search › Key Web shop"
    page = visit().enter("app", "#/requests?period=30")
    page.wait_for_selector("#crumbs [aria-current]:text-is('Team search')")
    assert page.inner_text("#crumbs") == "Team search"
