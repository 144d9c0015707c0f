"""The page's files are open and hold nothing; its figures take a key; everything comes from here and nowhere else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.auth import Authenticator, error_response
from gateway.dashboard.page import STATIC, Dashboard
from gateway.errors import MethodNotAllowed, NotFound
from gateway.learning.feedback import Feedback
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.formats import as_object
from gateway.ledger.reports.report import usage
from gateway.ledger.reports.turns import MOST_WAITING
from gateway.policy import keys
from gateway.policy.keys import Keys
from gateway.policy.tenants import Tenants
from gateway.state.sql.database import Database
from tests.dashboard.samples import NOW, policies, traffic
from tests.fakes.clock import StoppedClock

FILES = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "chart.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


async def not_found(request: Request, error: Exception) -> Response:
    return error_response(NotFound("There is nothing here."), request)


async def not_allowed(request: Request, error: Exception) -> Response:
    return error_response(MethodNotAllowed("Not like this."), request)


async def no_flight(request_id: str, team: str) -> None:
    """As after an hour: only the ledger knows the request."""


class Visitor:
    """A browser at the page, and keys to show there."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        secrets: dict[str, str],
        ids: dict[str, str],
        dashboard: Dashboard,
    ) -> None:
        self.http, self.secrets, self.ids, self.dashboard = http, secrets, ids, dashboard

    async def data(self, key: str, **query: str) -> httpx.Response:
        return await self.get("data", key, **query)

    async def get(self, path: str, as_key: str, /, **query: str) -> httpx.Response:
        return await self.http.get(f"/dashboard/{path}", params=query, headers=self._headers(as_key))

    async def post(self, path: str, as_key: str, /, **query: str) -> httpx.Response:
        return await self.http.post(f"/dashboard/{path}", params=query, headers=self._headers(as_key))

    def _headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secrets[key]}"}


@pytest_asyncio.fixture
async def visitor(database: Database) -> AsyncIterator[Visitor]:
    secrets, ids = {}, {}
    for name, team, scope in (
        ("lead", "search", "usage"),
        ("chat", "chat", "usage"),
        ("app", "search", "inference"),
        ("admin", "ops", "admin"),
        ("open", "open", "inference"),
    ):
        secrets[name], key = await asyncio.to_thread(keys.create, database, team, scopes=(scope,))
        ids[name] = key.id
    facts = {"open": {"data": {"share": "team"}, "timezone": "Europe/Madrid"}}
    found, ring = await asyncio.to_thread(policies, facts), Keys(database)  # the zone is read from a file
    await ring.refresh()
    dashboard = Dashboard(
        needs=Authenticator(Tenants(ring, found)).needs,
        database=database,
        policies=found,
        prices=await asyncio.to_thread(PriceBook.load),
        backends=lambda: (),
        feedback=Feedback(database),
        errors=dict,
        flight=no_flight,
        health=lambda tenant: [{"backend": "large", "state": "ok"}],
        clock=StoppedClock(NOW),
    )
    app = Starlette(routes=dashboard.routes, exception_handlers={404: not_found, 405: not_allowed})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as http:
        yield Visitor(http, secrets, ids, dashboard)
    await dashboard.aclose()


async def test_the_page_needs_no_key_and_allows_only_what_is_its_own(visitor: Visitor) -> None:
    page = await visitor.http.get("/dashboard")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    rules = page.headers["content-security-policy"].split("; ")
    assert {"default-src 'self'", "form-action 'none'", "frame-ancestors 'none'"} <= set(rules)
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("path", "media_type"), FILES.items())
async def test_every_file_has_its_type_and_the_same_rules(visitor: Visitor, path: str, media_type: str) -> None:
    file = await visitor.http.get(f"/dashboard/static/{path}")
    assert file.status_code == 200
    assert file.headers["content-type"].split(";")[0] == media_type
    assert "default-src 'self'" in file.headers["content-security-policy"]
    assert file.headers["x-content-type-options"] == "nosniff"


class Elements(HTMLParser):
    """What a page loads, and what a strict policy would forbid."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self._tag = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        for name, value in attrs:
            if name in ("src", "href") and value and not value.startswith("#"):
                self.loaded.append(value)
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag in ("script", "style") and data.strip():
            self.inline.append(self._tag)


async def test_the_page_has_nothing_inline_and_loads_only_its_own_files(visitor: Visitor) -> None:
    elements = Elements((await visitor.http.get("/dashboard")).text)
    assert elements.inline == []
    assert len(elements.loaded) >= 4
    for address in elements.loaded:
        assert address.startswith("dashboard/static/")  # relative, so that a mounted gateway has a page too
        assert (await visitor.http.get(f"/{address}")).status_code == 200


SVG = "//www.w3.org/2000/svg"
"""The name of a namespace, which no browser fetches."""


def test_scripts_import_each_other_make_no_markup_and_call_nobody_else() -> None:
    for script in STATIC.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        for imported in re.findall(r'from "\./([^"]+)"', text):
            assert (STATIC / imported).is_file(), f"{script.name} imports {imported}"
        assert not re.search(
            rf"https?:(?!{SVG})|innerHTML|outerHTML|insertAdjacentHTML|eval\(|localStorage|cookie", text
        ), script


async def test_what_a_browser_has_already_is_not_sent_again(visitor: Visitor) -> None:
    first = await visitor.http.get("/dashboard/static/page.js")
    again = await visitor.http.get("/dashboard/static/page.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "../page.py",
        "..%2fpage.py",
        "%2e%2e/page.py",
        "x/../../data.py",
        "x%2f..%2f..%2fdata.py",
        "..%5cpage.py",
        "%2fetc/passwd",
        f"{Path(__file__)}",
        "page.js%00",
        "static",
        "",
    ],
)
async def test_no_path_leads_out_of_the_page_s_own_files(visitor: Visitor, path: str) -> None:
    answer = await visitor.http.get(
        httpx.URL("http://gateway/").copy_with(raw_path=f"/dashboard/static/{path}".encode())
    )
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


async def test_figures_are_refused_without_a_key_and_to_keys_that_may_only_ask(visitor: Visitor) -> None:
    nobody = await visitor.http.get("/dashboard/data")
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "invalid_api_key")
    wrong = await visitor.http.get("/dashboard/data", headers={"authorization": "Bearer tg-wrong"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_api_key")
    app = await visitor.data("app")
    assert (app.status_code, app.json()["error"]["code"]) == (403, "forbidden")
    in_address = await visitor.http.get("/dashboard/data", params={"key": visitor.secrets["lead"]})
    assert in_address.status_code == 401


async def test_a_lead_s_figures_are_the_usage_report_s_and_kept_nowhere(visitor: Visitor, database: Database) -> None:
    await traffic(database)
    answer = await visitor.data("lead")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    figures = answer.json()
    assert (figures["team"], figures["days"]) == ("search", 30)
    total = as_object(await usage(database, team="search"))["total"]
    assert figures["total"] == {name: total[name] for name in figures["total"]}
    assert figures["viewer"] == {
        "team": "search",
        "scopes": ["usage"],
        "teams": ["search"],
        "zones": {},
        "invented": [],
    }
    assert visitor.dashboard.stats() == {"served": 1, "computed": 1}


async def test_another_team_s_key_sees_nothing_of_this_team(visitor: Visitor, database: Database) -> None:
    await traffic(database)
    own = await visitor.data("chat")
    assert own.json()["total"]["cost_usd"] == "7"
    assert "search" not in own.text
    asked = await visitor.data("chat", team="search")
    assert (asked.status_code, asked.json()["error"]["code"]) == (403, "forbidden")
    assert (await visitor.data("chat", team="chat")).status_code == 200


async def test_an_admin_may_name_a_team(visitor: Visitor, database: Database) -> None:
    await traffic(database)
    own, other = (await visitor.data("admin")).json(), (await visitor.data("admin", team="search")).json()
    assert (own["team"], own["total"]["requests"]) == ("ops", 0)
    assert (other["team"], other["total"]["cost_usd"]) == ("search", "8.75")
    teams = ["chat", "open", "ops", "search"]
    zones = {"open": "Europe/Madrid"}
    assert other["viewer"] == {"team": "ops", "scopes": ["admin"], "teams": teams, "zones": zones, "invented": []}


@pytest.mark.parametrize("days", ["0", "-1", "367", "9999999", "1.5", "month", "", "٣"])
async def test_days_must_be_a_number_that_makes_sense(visitor: Visitor, days: str) -> None:
    answer = await visitor.data("lead", days=days)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "days"


async def test_the_routes_are_for_reading(visitor: Visitor) -> None:
    for path in ("/dashboard", "/dashboard/data", "/dashboard/static/page.js"):
        assert (await visitor.http.post(path)).status_code == 405


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) <= MOST_BYTES


MOST_BYTES = 152_000
QUOTED = r'"((?:[^"\\]|\\.)*)"'
TABLES = (
    r"const (?:ADJECTIVES|TITLES|SAID|TIERS|HOLDS|EXHAUSTED|OVERHEAD|KINDS|CACHE|GROUPS|REFUSED)\b[^=]*= (\{[^}]*\})"
)


def texts() -> set[str]:
    """The English texts of the page: in calls of `t` and `tn`, in tables of texts, and in the marked elements."""
    found: set[str] = set()
    for path in STATIC.glob("*.js"):
        script = path.read_text(encoding="utf-8")
        if path.name not in ("texts.js", "i18n.js"):
            found |= set(re.findall(rf"\btn?\(\s*{QUOTED}", script))
            for pair in re.findall(rf"\btn?\([^()\"]*\? {QUOTED} : {QUOTED}", script):
                found |= set(pair)
            for entries in re.findall(TABLES, script):
                found |= set(re.findall(rf": {QUOTED}", entries))
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    found |= {unescape(text.strip()) for text in re.findall(r"data-t(?=[ >])[^>]*>([^<]+)<", page)}
    return found


@pytest.mark.parametrize("language", ["es", "pt"])
def test_every_text_is_translated_with_the_same_places_for_values(language: str) -> None:
    script = (STATIC / "texts.js").read_text(encoding="utf-8")
    found = re.findall(r"^([^|\n]+)\|([^|\n]+)(?:\|([^|\n]+))?$", script.split("`")[1], re.MULTILINE)
    lines = [(text, spanish, portuguese or spanish) for text, spanish, portuguese in found]
    assert len(lines) == len({text for text, *_ in lines}) == len(script.split("`")[1].split("\n")) - 2
    known = {text: {"es": spanish, "pt": portuguese}[language] for text, spanish, portuguese in lines}
    same = {"Backend", "Tokens", "Prompt", "{0} tokens", "Backends considered for {0}"}  # alike in all three languages
    missing = {text for text in texts() if text not in known and text not in same}
    assert {text for text in missing if text not in ALIKE[language]} == set()
    for text, translation in known.items():
        assert sorted(re.findall(r"\{\d\}", text)) == sorted(re.findall(r"\{\d\}", translation)), text


ALIKE = {"es": {"no", "Total", "Error"}, "pt": {"Cache", "Status"}}
"""Words that are the same in English and the other language."""


async def test_a_team_that_asks_for_everything_at_once_delays_no_other_team(visitor: Visitor) -> None:
    ended: list[tuple[str, int]] = []

    async def ask(key: str, path: str, **query: str) -> None:
        ended.append((key, (await visitor.get(path, key, **query)).status_code))

    many = 2 * MOST_WAITING
    for path, queries in (
        ("data", [{"period": str(days), "parts": "alerts"} for days in range(1, many)]),
        ("requests", [{"format": "csv"}] * many),
        ("groups", [{}] * many),
    ):
        ended.clear()
        await asyncio.gather(*(ask("lead", path, **query) for query in queries), ask("chat", path))
        assert ended.count(("lead", 200)) == MOST_WAITING
        assert ("lead", 503) in ended
        served = [key for key, status in ended if status == 200]
        assert served.index("chat") < 5
