"""The whole page by keyboard: the order is that of reading, the place is seen, Escape leaves."""

from __future__ import annotations

from tests.page.conftest import Dashboard, Open

FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  return [at.id || at.name || at.tagName.toLowerCase(), at.matches(":focus-visible"),
    style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
}"""


def test_the_door_and_the_figures_by_keyboard(visit: Open, dashboard: Dashboard) -> None:
    page = visit().page
    page.goto(dashboard.address)
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
    wanted = ["a", "days", "try", "leave", "summary", "by"]
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


def test_a_choice_is_made_and_a_request_opened_by_keyboard(visit: Open) -> None:
    page = visit().enter("lead")
    page.wait_for_selector("#brief .tile")
    page.focus("input[name=by][value=backend]")
    page.keyboard.press("ArrowRight")
    assert page.is_checked("input[name=by][value=model]")
    assert page.inner_text("#where thead th:first-child") == "Model"
    page.focus("#dearest li:first-child summary")
    page.keyboard.press("Enter")
    page.wait_for_selector("#dearest li:first-child details[open] .record > *")


def test_what_is_open_stays_open_while_figures_are_renewed(visit: Open) -> None:
    page = visit().enter("lead")
    page.wait_for_selector("#brief .tile")
    page.click("#dearest li:first-child summary")
    page.focus("#where .scroll")
    with page.expect_response("**/dashboard/data*"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(200)
    assert page.locator("#dearest details[open]").count() == 1
    assert page.evaluate("document.activeElement.closest('#where') !== null")
