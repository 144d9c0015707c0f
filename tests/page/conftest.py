"""A real gateway with a month of traffic, and Debian's Chromium, headless, to look at its page."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.policy import keys
from gateway.state.sql.database import Database
from loadtests.ports import free_port
from tests.e2e.gateway_process import REPOSITORY, GatewayProcess
from tests.page import traffic

if TYPE_CHECKING:  # installed by `make test-page` alone
    from playwright.sync_api import Browser, BrowserContext, Page

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{provider}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, price: {{input: 0.1, output: 0.4}}}}
  - {{name: gpt, kind: openai, base_url: "http://127.0.0.1:{provider}/v1", model: scripted-large, tier: hosted,
      window_tokens: 128000, price: {{input: 2.5, output: 10}}}}
local_model: {{enabled: false}}
"""
SEARCH = """\
slo: 97%
budget:
  - {limit_usd: 5, window: month, timezone: Europe/Madrid, alerts: [50%, 80%, 100%, forecast]}
  - {limit_usd: 0.05, window: day, on_exhausted: downgrade}
  - {name: tokens of the week, limit_tokens: 4000000, window: week}
  - {limit_usd: 1, per: key}
  - {limit_usd: 40, window: total}
"""
SPENT = "cache: {enabled: false}\nbudget: {limit_usd: 0.000001, window: total}\n"
WIDE, PHONE = (1280, 900), (375, 812)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, eq=False)
class Dashboard:
    """The gateway, and a key of each kind."""

    gateway: GatewayProcess
    keys: dict[str, str]

    @property
    def address(self) -> str:
        return f"{self.gateway.base}/dashboard"


@pytest.fixture(scope="package")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    port = free_port()
    policies = {"search": SEARCH, traffic.CHAT: "budget: {limit_usd: 20}\n", "spent": SPENT}
    gateway = GatewayProcess(tmp_path_factory.mktemp("page") / "home", CONFIG.format(provider=port), policies)
    made = _fill(gateway)
    provider = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.provider", "--port", str(port)], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )
    try:
        gateway.start()
        yield Dashboard(gateway, made)
        gateway.stop()
    finally:
        provider.terminate()
        provider.wait(timeout=10)


def _fill(gateway: GatewayProcess) -> dict[str, str]:
    """The ledger as a month has left it, and the keys."""
    (gateway.home / "data").mkdir()
    database = Database(f"sqlite:///{gateway.home}/data/ledger.sqlite")
    try:
        database.upgrade()
        traffic.put(database, time.time())
        both, look = ("usage", "inference"), ("usage",)
        wanted = [("lead", traffic.SEARCH, both, None), ("look", traffic.SEARCH, look, None)]
        wanted += [("chat", traffic.CHAT, look, None), ("new", traffic.NEW, both, None), ("spent", "spent", both, None)]
        wanted += [("admin", "ops", ("admin",), None), ("old", traffic.SEARCH, look, time.time() - 60)]
        wanted += [("app", traffic.SEARCH, ("inference",), None)]
        wanted += [("player", "player", both, None), ("leaving", traffic.SEARCH, look, None)]
        return {
            name: keys.create(database, team, scopes=scopes, expires_at=expires)[0]
            for name, team, scopes, expires in wanted
        }
    finally:
        database.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Not for the whole session: as long as it lives, a loop counts as running, in which nothing may block."""
    from playwright.sync_api import sync_playwright

    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail("no Chromium on this machine: `make test-page` says how to get one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Visit:
    """One tab, and everything that came over its wire."""

    def __init__(self, context: BrowserContext, dashboard: Dashboard) -> None:
        self.dashboard, self.context = dashboard, context
        self.page: Page = context.new_page()
        self.asked: list[str] = []
        self.bodies: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("requestfinished", lambda request: self.bodies.append(_text(request)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def enter(self, key: str, address: str = "#/overview?period=30") -> Page:
        """Show a view with one of the dashboard's keys."""
        self.page.goto(self.dashboard.address + address)
        self.page.fill("#key", self.dashboard.keys[key])
        self.page.click("#door button")
        self.page.wait_for_selector("#figures:not([hidden])")
        return self.page

    def go(self, address: str) -> Page:
        """Follow a link of the page."""
        self.page.evaluate("(address) => { location.hash = address; }", address)
        return self.page


def _text(request: object) -> str:
    try:
        return str(request.response().text())  # type: ignore[attr-defined]
    except Exception:  # a redirect or a page that is gone has none
        return ""


Open = Callable[..., Visit]


@pytest.fixture
def visit(dashboard: Dashboard, browser: Browser) -> Iterator[Open]:
    """`visit(size=PHONE, scheme="dark")`: a browser of its own."""
    contexts: list[BrowserContext] = []

    def open_(size: tuple[int, int] = WIDE, scheme: str = "light") -> Visit:
        phone = size == PHONE
        contexts.append(
            browser.new_context(
                color_scheme="dark" if scheme == "dark" else "light",
                viewport={"width": size[0], "height": size[1]},
                is_mobile=phone,
                has_touch=phone,
                timezone_id="Europe/Madrid",
                locale="de-DE",
            )
        )
        contexts[-1].set_default_timeout(10_000)
        return Visit(contexts[-1], dashboard)

    yield open_
    for context in contexts:
        context.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.page)
            item.add_marker(pytest.mark.timeout(120))  # the first starts a gateway and a browser
