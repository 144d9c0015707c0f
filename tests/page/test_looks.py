"""Readable everywhere: on a phone nothing overflows, and all text stands out in light and dark."""

from __future__ import annotations

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(visit: Open, dashboard: Dashboard, scheme: str) -> None:
    opened = visit(scheme=scheme)
    opened.page.goto(dashboard.address)
    opened.page.fill("#key", "tg-wrong")
    opened.page.keyboard.press("Enter")
    until(opened.page, "document.querySelector('#refused').textContent !== ''")
    assert_readable(opened.page, 8)
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    for summary in page.locator("summary").all()[:6]:
        summary.click()
    assert_readable(page, 300)
    opened.context.set_offline(True)
    page.select_option("#days", "7")
    page.wait_for_selector("#status .bad")
    assert_readable(page, 300)
    opened.context.set_offline(False)
    page.click("#try")
    assert_readable(page, 300)


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


def test_on_a_phone_nothing_overflows(visit: Open, dashboard: Dashboard) -> None:
    opened = visit(PHONE)
    opened.page.goto(dashboard.address)
    assert_nothing_overflows(opened.page)
    page = opened.enter("lead")
    page.wait_for_selector("#brief .tile")
    for summary in page.locator("summary").all()[:6]:
        summary.click()
    page.wait_for_selector("#dearest .record > *")
    page.check("input[name=by][value=tag]")
    assert_nothing_overflows(page)
    page.click("#try")
    page.fill("#prompt", "word " * 200)
    assert_nothing_overflows(page)


def test_on_a_phone_buttons_are_large_enough_for_a_finger(visit: Open) -> None:
    page = visit(PHONE).enter("lead")
    heights = page.eval_on_selector_all(
        "button, select, .choice label, summary",
        "(all) => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().height)",
    )
    assert len(heights) > 8
    assert min(heights) >= 24  # WCAG 2.2, success criterion 2.5.8


def test_the_plots_are_drawn_at_the_width_there_is(visit: Open) -> None:
    page = visit(PHONE).enter("lead")
    page.wait_for_selector("#plot canvas")
    page.set_viewport_size({"width": 900, "height": 800})
    until(page, "document.querySelector('#plot canvas').getBoundingClientRect().width > 700")
    assert page.locator(".course canvas").count() == 3
    assert all(page.eval_on_selector_all("[role=img]", "(all) => all.map((one) => one.ariaLabel?.length > 20)"))
