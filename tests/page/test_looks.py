"""Readable everywhere: on a phone nothing overflows, and all text stands out in light and dark."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import PHONE, Dashboard, Open
from tests.page.reading import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

LEAST = 4.5
"""WCAG 2.2, success criterion 1.4.3, level AA."""
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((part, n) => part * top[3] + below[n] * (1 - top[3]));
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
    const below = ground(element), text = over(rgba(getComputedStyle(element).color), below);
    const [high, low] = [light(text), light(below)].sort((a, b) => b - a);
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
    found.push([(high + 0.05) / (low + 0.05) * opacity, walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""
TOKENS = ("--ink", "--quiet", "--near", "--over", "--fine", "--accent")


def contrasts(page: Page) -> list[tuple[float, str]]:
    """Of all text in sight: its contrast to what it stands on."""
    return [(ratio, text) for ratio, text in page.evaluate(CONTRAST)]


def assert_readable(page: Page, least: int) -> None:
    found = contrasts(page)
    assert len(found) >= least
    assert [(round(ratio, 2), text) for ratio, text in found if ratio < LEAST] == []


VIEWS = (
    ("#/overview?period=30", "#brief .tile", 150),
    ("#/budget?period=30", "#dearest td", 80),
    ("#/requests?period=30", "#log td", 300),
    ("#/request/r_hostile", "#one .words", 30),
    ("#/models?period=30", "#latency td", 80),
)
"""Address, what is there in the end, and the least number of texts."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(visit: Open, dashboard: Dashboard, scheme: str) -> None:
    opened = visit(scheme=scheme)
    opened.page.goto(dashboard.address)
    opened.page.fill("#key", "tg-wrong")
    opened.page.keyboard.press("Enter")
    until(opened.page, "document.querySelector('#refused').textContent !== ''")
    assert_readable(opened.page, 8)
    opened.enter("lead")
    for address, ready, least in VIEWS:
        page = opened.go(address)
        page.wait_for_selector(ready)
        for summary in page.locator("summary:visible").all():
            summary.click()
        assert_readable(page, least)
    opened.context.set_offline(True)
    page.select_option("#period", "7")
    page.wait_for_selector("#status .bad")
    assert_readable(page, 60)
    opened.context.set_offline(False)
    page.click("#try")
    assert_readable(page, 60)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_ink_stands_out_on_card_and_ground(visit: Open, dashboard: Dashboard, scheme: str) -> None:
    page = visit(scheme=scheme).page
    page.goto(dashboard.address)
    page.evaluate(
        """(tokens) => {
          document.body.replaceChildren(...["--card", "--ground"].flatMap((ground) => tokens.map((ink) => {
            const line = document.createElement("p");
            line.textContent = `${ink} on ${ground}`;
            line.style.color = `var(${ink})`;
            line.style.background = `var(${ground})`;
            return line;
          })));
        }""",
        TOKENS,
    )
    assert_readable(page, 2 * len(TOKENS))


def test_dark_is_dark_and_follows_the_system(visit: Open) -> None:
    page = visit().enter("lead")
    ground = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).reduce((all, part) => all + +part, 0)"
    assert page.evaluate(ground) > 600
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) < 150


def assert_nothing_overflows(page: Page) -> None:
    assert page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]") == [PHONE[0], PHONE[0]]
    beyond = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((each) => each.checkVisibility() &&
          !each.closest(".scroll, .unseen, .skip, select") && each.getBoundingClientRect().right > innerWidth + 0.5)
          .map((each) => `${each.tagName} ${each.className}`)"""
    )
    assert beyond == []


def test_on_a_phone_nothing_overflows_and_no_table_is_cut(visit: Open, dashboard: Dashboard) -> None:
    opened = visit(PHONE)
    opened.page.goto(dashboard.address)
    assert_nothing_overflows(opened.page)
    page = opened.enter("lead")
    for address, ready, _ in VIEWS:
        opened.go(address)
        page.wait_for_selector(ready)
        for summary in page.locator("summary:visible").all():
            summary.click()
        assert_nothing_overflows(page)
        assert page.evaluate(CUT) == []
    page.click("#try")
    page.fill("#prompt", "word " * 200)
    assert_nothing_overflows(page)


CUT = """() => [...document.querySelectorAll(".scroll")].filter((one) => one.checkVisibility() &&
  one.scrollWidth > one.clientWidth + 1).map((one) => one.ariaLabel)"""
"""Tables that must be scrolled sideways."""


WORDS = """() => [...document.querySelectorAll("td > *")].filter((cell) => {
  const [wide, words] = [cell.getBoundingClientRect().width, document.createElement("div")];
  words.style.cssText = "position: absolute; width: min-content";
  words.append(...[...cell.childNodes].map((one) => one.cloneNode(true)));
  cell.append(words);
  const least = words.getBoundingClientRect().width;
  words.remove();
  return least > wide + 0.5;
}).map((cell) => cell.textContent)"""
"""Cells of tables that are narrower than their longest word."""


@pytest.mark.parametrize("language", ["en", "es", "pt"])
def test_on_a_phone_no_word_of_the_teams_is_broken(visit: Open, language: str) -> None:
    page = visit(PHONE).enter("admin", "#/teams?period=30")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #teams td .badge")
    texts = {"en": "Probably, but nearly used up", "es": "Probablemente, pero casi agotado"}
    page.eval_on_selector_all(  # the longest text that this cell can have
        "#teams td:has(.badge) .quiet",
        "(all, text) => all.forEach((one) => { one.textContent = text; })",
        texts.get(language, "Provavelmente, mas quase esgotado"),
    )
    assert page.evaluate(WORDS) == []
    assert_nothing_overflows(page)


@pytest.mark.parametrize("language", ["en", "es", "pt"])
def test_on_a_phone_the_label_beside_a_text_has_one_line(visit: Open, language: str) -> None:
    page = visit(PHONE).enter("lead", "#/budget?period=30")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #dearest td.partly")
    wide, label, before = page.eval_on_selector(
        "#dearest td.partly",
        """(cell) => {
          const words = document.createElement("span");
          words.style.cssText = "position: absolute; width: max-content";
          words.textContent = cell.dataset.label;
          cell.append(words);
          const label = words.getBoundingClientRect().width;
          words.remove();
          return [cell.clientWidth, label, cell.firstElementChild.offsetLeft - cell.offsetLeft];
        }""",
    )
    assert 0 < label <= before < wide


@pytest.mark.parametrize("language", ["en", "pt"])
def test_the_labels_of_the_days_do_not_overlap(visit: Open, language: str) -> None:
    page = visit(PHONE).enter("lead")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #plot rect")
    drawn = "document.querySelector('#plot svg')"
    for width in range(340, 460, 10):
        page.set_viewport_size({"width": width, "height": 800})
        until(page, f"{drawn}.getAttribute('width') === String({drawn}.parentElement.clientWidth)")
        boxes = page.eval_on_selector_all(
            "#plot svg text.mark[text-anchor=middle]",
            "(all) => all.map((one) => one.getBoundingClientRect()).map(({left, right}) => [left, right])",
        )
        assert len(boxes) > 1
        assert all(right < left for (_, right), (left, _) in itertools.pairwise(boxes)), (width, boxes)
        assert boxes[-1][1] <= width


def test_on_a_phone_buttons_are_large_enough_for_a_finger(visit: Open) -> None:
    page = visit(PHONE).enter("lead")
    page.wait_for_selector("#brief .tile")
    heights = page.eval_on_selector_all(
        "button, select, nav a, summary",
        "(all) => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().height)",
    )
    assert len(heights) > 8
    assert min(heights) >= 24  # WCAG 2.2, success criterion 2.5.8


def test_the_charts_are_drawn_at_the_width_there_is(visit: Open) -> None:
    opened = visit(PHONE)
    page = opened.enter("lead")
    page.wait_for_selector("#plot svg")
    page.set_viewport_size({"width": 900, "height": 800})
    until(page, "document.querySelector('#plot svg').getBoundingClientRect().width > 700")
    opened.go("#/budget?period=30")
    page.wait_for_selector(".course svg")
    assert page.locator(".course svg").count() == 3
    drawn = "[role=img]:has(svg)"
    assert all(page.eval_on_selector_all(drawn, "(all) => all.map((one) => one.ariaLabel?.length > 20)"))


def test_the_chart_says_the_values_at_the_pointer(visit: Open) -> None:
    page = visit().enter("lead")
    page.wait_for_selector("#plot rect")
    page.hover("#plot svg", position={"x": 1000, "y": 100})
    text = page.inner_text("#plot .pointed")
    assert "gpt-5-mini-2026-01-15 $" in text
    assert "qwen3-32b $" in text


@pytest.mark.parametrize("language", ["es", "pt"])
def test_the_page_speaks_the_language_that_is_chosen(visit: Open, language: str) -> None:
    page = visit().enter("lead")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}]")
    page.wait_for_selector("#brief .tile")
    assert {"es": "Presupuesto y ahorro", "pt": "Orçamento e economia"}[language] in page.inner_text("#nav")
    assert {"es": "¿Alcanzará el presupuesto?", "pt": "O orçamento será suficiente?"}[language] in page.inner_text(
        "#answers"
    )


@pytest.mark.parametrize(
    ("language", "alert", "refusal"),
    [
        ("es", "Presupuesto mensual: 0,5500 $ de 1,00 $ (50 %)", "Esta clave no es válida."),
        ("pt", "Orçamento mensal: US$ 0,5500 de US$ 1,00 (50%)", "Esta chave não é válida."),
    ],
)
def test_what_the_server_says_is_translated_or_marked_as_english(
    visit: Open, language: str, alert: str, refusal: str
) -> None:
    opened = visit()
    page = opened.enter("lead", "#/overview?period=30")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang={language}] #alerts li")
    assert alert in page.inner_text("#alerts").replace("\u00a0", " ")
    opened.go("#/requests?period=30")
    page.click("#log tbody tr:has-text('gpt') a")
    page.wait_for_selector("#one .headline")
    words = page.locator("#one .words")
    assert {"es": "La pasarela eligió gpt", "pt": "O gateway escolheu gpt"}[language] in page.inner_text("#one")
    assert words.locator("[lang=en]").count() == 0
    page.click("#leave")
    page.fill("#key", "tg-" + "x" * 40)
    page.click("#door button")
    page.wait_for_selector(f"#refused:text-is('{refusal}')")
