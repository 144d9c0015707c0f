"""Which tier a request asks for, which fees it may be charged, and the price that money is held at for it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.requests.surcharges import Surcharges, held_price, surcharges
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.request import DialectName
from gateway.ledger.prices.price_book import PriceBook
from tests.support.requests import request_in

CHAT: DialectName = "openai_chat"
CLAUDE: DialectName = "anthropic_messages"


@pytest.mark.parametrize(
    ("dialect", "backend", "fields"),
    [
        (CHAT, CHAT, {}),
        (CHAT, CHAT, {"service_tier": "auto"}),
        (CHAT, CHAT, {"tools": [{"type": "function", "function": {"name": "web_search"}}]}),
        (CHAT, CLAUDE, {"service_tier": "priority"}),
        (CLAUDE, CLAUDE, {"service_tier": "auto", "tools": [{"name": "t", "input_schema": {"type": "object"}}]}),
        (CLAUDE, CLAUDE, {"service_tier": "standard_only", "speed": "standard"}),
        (CLAUDE, CHAT, {"speed": "fast", "service_tier": "auto"}),
        (CLAUDE, CLAUDE, {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}),
    ],
)
def test_an_ordinary_request_has_none(dialect: DialectName, backend: DialectName, fields: dict[str, Any]) -> None:
    assert surcharges(request_in(dialect, **fields), backend) is None


@pytest.mark.parametrize(
    ("dialect", "backend", "fields", "found"),
    [
        (CHAT, CHAT, {"service_tier": "default"}, Surcharges("")),
        (CHAT, CHAT, {"service_tier": "priority"}, Surcharges("priority")),
        (CHAT, CHAT, {"service_tier": "fast"}, Surcharges("priority")),
        (CHAT, CHAT, {"service_tier": "flex"}, Surcharges("flex")),
        ("openai_responses", "openai_responses", {"service_tier": "scale"}, Surcharges("scale")),
        (CLAUDE, CLAUDE, {"speed": "fast"}, Surcharges("fast", open=True)),
        (CLAUDE, CLAUDE, {"speed": "fast", "inference_geo": "us"}, Surcharges("fast+us")),
        (CLAUDE, CLAUDE, {"inference_geo": "global"}, Surcharges("")),
        (CHAT, CLAUDE, {"speed": "fast", "service_tier": "flex"}, Surcharges("fast", open=True)),
        (CHAT, CHAT, {"web_search_options": {}}, Surcharges(None, ("web_search",))),
        (CHAT, CHAT, {"model": "gpt-4o-search-preview"}, Surcharges(None, ("web_search",))),
        (
            "openai_responses",
            "openai_responses",
            {"tools": [{"type": "web_search_preview"}, {"type": "code_interpreter", "container": {"type": "auto"}}]},
            Surcharges(None, ("code_execution", "web_search")),
        ),
        (
            "openai_responses",
            "openai_responses",
            {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}, {"type": "image_generation"}]},
            Surcharges(None, ("file_search", "image_generation")),
        ),
        (
            CLAUDE,
            CLAUDE,
            {
                "speed": "fast",
                "tools": [
                    {"type": "web_search_20250305", "name": "web_search"},
                    {"type": "code_execution_20250825", "name": "code_execution"},
                ],
            },
            Surcharges("fast", ("code_execution", "web_search"), open=True),
        ),
    ],
)
def test_what_a_request_asks_for(
    dialect: DialectName, backend: DialectName, fields: dict[str, Any], found: Surcharges
) -> None:
    assert surcharges(request_in(dialect, **fields), backend) == found


@pytest.mark.parametrize("tools", [[1, None, "x"], [{"type": ["web_search"]}], [{"type": {"a": 1}}], {"type": "x"}])
def test_garbage_among_tools_is_not_looked_at(tools: Any) -> None:
    request = request_in(CHAT)
    request.body["tools"] = tools
    assert surcharges(request, CHAT) is None


@pytest.fixture(scope="module")
def prices() -> dict[str, Price]:
    found = {}
    catalogue = PriceBook.load()
    for name, host in (("gpt-5.1", "api.openai.com"), ("claude-opus-4-8", "api.anthropic.com")):
        price = catalogue.price(Backend(name=name, kind="openai", base_url=f"https://{host}/v1", model=name))
        assert price is not None
        found[name] = price
    return found


@pytest.mark.parametrize(
    ("model", "wanted", "output"),
    [
        ("gpt-5.1", None, 20),  # the project's setting may be priority
        ("gpt-5.1", Surcharges(None, ("web_search",)), 20),
        ("gpt-5.1", Surcharges(""), 10),
        ("gpt-5.1", Surcharges("priority"), 20),
        ("gpt-5.1", Surcharges("flex"), 10),  # where flex is full, others serve
        ("gpt-5.1", Surcharges("scale"), None),
        ("claude-opus-4-8", None, 27.5),  # the workspace's place of processing may be the US
        ("claude-opus-4-8", Surcharges(""), 25),
        ("claude-opus-4-8", Surcharges("us"), 27.5),
        ("claude-opus-4-8", Surcharges("fast"), 50),
        ("claude-opus-4-8", Surcharges("fast", open=True), 55),
        ("claude-opus-4-8", Surcharges("fast+us"), 55),
        ("claude-opus-4-8", Surcharges("fast+eu"), None),
    ],
)
def test_money_is_held_at_no_less_than_any_tier_that_may_serve(
    prices: dict[str, Price], model: str, wanted: Surcharges | None, output: float | None
) -> None:
    held = held_price(prices[model], wanted)
    assert (None if held is None else held.output / 10**6) == output


def test_a_price_without_tiers_is_held_as_it_is() -> None:
    price = Price(1, 2)
    assert held_price(price, None) is price
    assert held_price(price, Surcharges("")) is price
    assert held_price(price, Surcharges("priority")) is None
    machine = Price(1, 2, every_tier=True)
    assert held_price(machine, Surcharges("priority")) is machine
