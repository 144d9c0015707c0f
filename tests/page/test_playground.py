"""A prompt tried on the page is a real request, shown with what was decided for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.page.conftest import Dashboard, Open

if TYPE_CHECKING:
    from playwright.sync_api import Page

FACTS = """() => Object.fromEntries([...document.querySelectorAll("#said .facts > div")].map((one) =>
  [one.querySelector("dt").textContent, one.querySelector("dd data")?.value ?? one.querySelector("dd").textContent]))"""


def ask(page: Page, prompt: str) -> dict[str, str]:
    """What stands below the answer."""
    page.fill("#prompt", prompt)
    with page.expect_response("**/v1/requests/*"):
        page.click("dialog button[type=submit]")
    page.wait_for_selector("#said .facts")
    facts: dict[str, str] = page.evaluate(FACTS)
    return facts


def test_a_prompt_is_answered_and_its_decision_shown(visit: Open, dashboard: Dashboard) -> None:
    page = visit().enter("player")
    page.click("#try")
    facts = ask(page, "How many days are in a week?")
    assert page.inner_text("#said .answer") == "You said: How many days are in a week?"
    flight = page.evaluate(
        """async ([id, key]) =>
          (await fetch(`v1/requests/${id}`, { headers: { authorization: `Bearer ${key}` } })).json()""",
        [facts["Request"], dashboard.keys["player"]],
    )
    assert facts["Cost"] == flight["cost_usd"]
    assert facts["Served by"].startswith(f"{flight['attempts'][-1]['backend']} (")
    assert "miss" in facts["Cache"]
    considered = page.eval_on_selector_all("#said tbody th", "(all) => all.map((one) => one.textContent)")
    assert considered == [one["backend"] for one in flight["route"]["considered"]]
    assert flight["route"]["reason"] in page.inner_text("#said")

    assert "exact hit" in ask(page, "How many days are in a week?")["Cache"]
    page.check("dialog input[name=bypass]")
    assert "bypassed" in ask(page, "How many days are in a week?")["Cache"]


def test_two_models_answer_side_by_side_and_neither_from_the_cache(visit: Open) -> None:
    page = visit().enter("player")
    page.click("#try")
    page.wait_for_selector("#names option", state="attached")
    names = page.eval_on_selector_all("#names option", "(all) => all.map((one) => one.value)")
    assert names == ["auto", "small", "gpt"]
    page.fill("#prompt", "How many hours are in a day?")
    page.fill("dialog input[name=model]", "small")
    page.fill("dialog input[name=other]", "gpt")
    for _ in range(2):  # the second time, a cached answer would exist
        page.click("dialog button[type=submit]")
        for place in (1, 2):
            page.wait_for_selector(f"#said section:nth-child({place}) .facts")
        shown = page.eval_on_selector_all(
            "#said section",
            """(all) => all.map((one) => [one.querySelector("h3").textContent, one.querySelector(".answer").textContent,
              ...[...one.querySelectorAll(".facts > div")].map((fact) => fact.textContent)])""",
        )
        for name, (title, answer, *facts) in zip(("small", "gpt"), shown, strict=True):
            assert title == f"Answer of {name}"
            assert answer == "You said: How many hours are in a day?"
            assert facts[0].startswith(f"Served by{name} (")
            assert any(fact.startswith("Cost") and "$" in fact for fact in facts)
            assert any("bypassed" in fact for fact in facts)
            assert any(fact.startswith("First byte") and fact[-1] == "s" for fact in facts)
    left, right = page.eval_on_selector_all(
        "#said section", "(all) => all.map((one) => one.getBoundingClientRect().top)"
    )
    assert left == right


def test_an_answer_can_be_cancelled(visit: Open) -> None:
    page = visit().enter("player")
    page.click("#try")
    page.route("**/v1/chat/completions", lambda route: None)  # never answers
    page.fill("#prompt", "Wait")
    assert page.is_hidden("#cancel")
    page.click("dialog button[type=submit]")
    page.click("#cancel")
    page.wait_for_selector("#said .warn")
    assert page.is_hidden("#cancel")
    assert "Cancelled" in page.inner_text("#said .warn")


def test_a_refusal_is_shown_in_the_gateway_s_words(visit: Open) -> None:
    page = visit().enter("spent")
    page.click("#try")
    page.fill("#prompt", "Prove Fermat's last theorem.")
    page.click("dialog button[type=submit]")
    page.wait_for_selector("#said .bad")
    assert "budget" in page.inner_text("#said .bad").lower()


def test_a_model_that_is_not_there_is_told(visit: Open) -> None:
    page = visit().enter("player")
    page.click("#try")
    page.fill("dialog input[name=model]", "no-such-model")
    page.fill("#prompt", "Hello")
    page.click("dialog button[type=submit]")
    page.wait_for_selector("#said .bad")
    assert "no-such-model" in page.inner_text("#said .bad")


def test_a_key_that_may_only_look_is_told_how_to_get_one_that_may_ask(visit: Open) -> None:
    page = visit().enter("look")
    page.click("#try")
    assert page.is_hidden("dialog form")
    assert "--scope inference" in page.inner_text("#who")


def test_an_empty_prompt_is_not_sent(visit: Open) -> None:
    opened = visit()
    page = opened.enter("player")
    page.click("#try")
    page.click("dialog button[type=submit]")
    assert page.evaluate("document.querySelector('#prompt').validity.valueMissing")
    assert not any("/v1/chat" in address for address in opened.asked)
