"""The whole page by keyboard: the order is that of reading, the place is seen, Escape leaves."""

from __future__ import annotations

from tests.page.conftest import Dashboard, Open
from tests.page.reading import until

FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  return [at.id || at.name || at.tagName.toLowerCase(), at.matches(":focus-visible"),
    style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
}"""


def test_the_door_and_the_figures_by_keyboard(visit: Open, dashboard: Dashboard) -> None:
    page = visit().page
    page.goto(f"{dashboard.address}#/overview?period=30")
    page.wait_for_selector("#door:not([hidden])")
    assert page.evaluate(FOCUSED)[0] == "key"
    page.keyboard.type(dashboard.keys["lead"])
    page.keyboard.press("Enter")
    page.wait_for_selector("#brief .tile")
    page.reload()  # the key is still known; the focus is at the beginning
    page.wait_for_selector("#brief .tile")
    steps = []
    for _ in range(40):
        page.keyboard.press("Tab")
        steps.append(page.evaluate(FOCUSED))
        if steps[-1][0] == "body":
            break
    assert all(visible and drawn for name, visible, drawn in steps if name != "body"), steps
    names = [name for name, _, _ in steps]
    assert "key" not in names  # the door is shut
    wanted = ["a", "language", "period", "try", "leave", "summary"]
    places = [names.index(name) for name in wanted]
    assert places == sorted(places), names


def test_the_first_step_leads_past_the_controls(visit: Open) -> None:
    page = visit().enter("lead")
    page.wait_for_selector("#brief .tile")
    page.reload()
    page.wait_for_selector("#brief .tile")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the figures"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_escape_closes_the_dialog_and_the_focus_returns(visit: Open) -> None:
    page = visit().enter("lead")
    page.focus("#try")
    page.keyboard.press("Enter")
    assert page.is_visible("dialog[open]")
    assert page.evaluate(FOCUSED)[0] == "prompt"
    for _ in range(12):  # the page behind is out of reach
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    assert page.is_hidden("dialog")
    assert page.evaluate("document.activeElement.id") == "try"


def test_a_request_is_found_and_opened_by_keyboard(visit: Open) -> None:
    page = visit().enter("lead", "#/requests?period=30")
    page.wait_for_selector("#log tbody tr")
    page.focus("#filters [name=backend]")
    page.keyboard.type("gpt")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('backend=gpt')")
    until(page, "[...document.querySelectorAll('#log tbody tr')].every((one) => one.textContent.includes('gpt'))")
    page.focus("#log tbody a >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#one .life li")
    page.go_back()
    page.wait_for_selector("#log tbody tr")
    assert page.input_value("#filters [name=backend]") == "gpt"


def test_what_is_open_stays_open_while_figures_are_renewed(visit: Open) -> None:
    page = visit().enter("lead")
    page.wait_for_selector("#brief .tile")
    page.click("#days-table >> xpath=.. >> summary")
    page.focus("#days-table .scroll")
    with page.expect_response("**/dashboard/data*"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(200)
    assert page.is_visible("#days-table table")
    assert page.evaluate("document.activeElement.closest('#days-table') !== null")
