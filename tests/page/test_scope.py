"""A team sees its own figures; the page asks nobody but its gateway and runs nothing but its own scripts."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.page import traffic
from tests.page.conftest import Dashboard, Open
from tests.page.reading import until


def test_nothing_of_another_team_reaches_page_or_wire(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.check("input[name=by][value=key]")
    page.select_option("#days", "366")
    until(page, "document.querySelector('#moment').textContent.startsWith('From 2025')")
    page.click("#dearest li:first-child summary")
    assert page.is_hidden("#team-choice")
    seen = page.content() + "".join(opened.bodies)
    assert len(opened.bodies) > 10
    assert [secret for secret in traffic.FOREIGN if secret in seen] == []


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


def test_an_admin_chooses_a_team(visit: Open) -> None:
    page = visit().enter("admin")
    names = page.eval_on_selector_all("#team option", "(all) => all.map((one) => one.value)")
    assert {"ops", traffic.CHAT, traffic.SEARCH, "newcomer"} <= set(names)
    page.select_option("#team", traffic.CHAT)
    until(page, f"document.querySelector('#title').textContent === 'Team {traffic.CHAT}'")
    assert page.locator("#brief data[value^='13.37']").count() == 1
    page.select_option("#team", traffic.SEARCH)
    until(page, f"document.querySelector('#title').textContent === 'Team {traffic.SEARCH}'")
    assert "13.37" not in page.inner_text("#figures")


def test_forgetting_the_key_empties_the_page(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    page.click("#leave")
    assert page.is_visible("#door")
    assert page.evaluate("sessionStorage.length + localStorage.length + document.cookie.length") == 0
    assert page.locator("#figures :is(data, canvas, tbody, article, .requests > *)").count() == 0
    assert "search" not in page.content()
    page.reload()
    assert page.is_visible("#door")


def test_only_this_gateway_is_asked_and_no_key_stands_in_an_address(visit: Open, dashboard: Dashboard) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    page.click("#dearest li:first-child summary")
    page.wait_for_selector("#dearest .record > *")
    assert {urlsplit(address).netloc for address in opened.asked} == {urlsplit(dashboard.gateway.base).netloc}
    assert not any(key in address for address in opened.asked for key in dashboard.keys.values())
    assert [said for said in opened.complaints if "404" not in said] == []  # flight records are kept for an hour


def test_what_clients_wrote_stays_text(visit: Open) -> None:
    opened = visit()
    page = opened.enter("lead")
    page.check("input[name=by][value=tag]")
    assert traffic.HOSTILE in page.inner_text("#where")
    assert page.locator("#figures img").count() == 0


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
