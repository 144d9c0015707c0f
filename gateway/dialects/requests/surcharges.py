"""Charges beside the token price that a request may cause: service tier, fees of tools.

Fees, as vendors charge them per use: web search, code execution (a container) and file search at OpenAI, web search and
code execution at Anthropic, web and X search at xAI; images that a chat model has made are charged as another model's.
Fetching pages, computer use, shells of the client's own, MCP servers and tool search cost tokens alone.
https://developers.openai.com/api/docs/pricing, https://platform.claude.com/docs/en/about-claude/pricing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.dialects.answers.service_tiers import normalised
from gateway.domain.money.price import Price, dearest_of
from gateway.domain.request import CompletionRequest, DialectName

WEB_SEARCH, CODE_EXECUTION, FILE_SEARCH, IMAGE_GENERATION = (
    "web_search",
    "code_execution",
    "file_search",
    "image_generation",
)
"""Units, as `Usage.fees` names them too."""

_TOOLS = (
    ("web_search", WEB_SEARCH),
    ("x_search", WEB_SEARCH),
    ("code_interpreter", CODE_EXECUTION),
    ("code_execution", CODE_EXECUTION),
    ("file_search", FILE_SEARCH),
    ("image_generation", IMAGE_GENERATION),
)
"""How a tool's type begins: dates and `_preview` follow."""
_SEARCHING = ("-search-preview", "-search-api")
"""In names of models that search with every answer."""


@dataclass(frozen=True, slots=True)
class Surcharges:
    service_tier: str | None
    """That the client asks for, as `Usage.service_tier` names it; None: it leaves that to the provider."""
    fees: tuple[str, ...] = ()
    """Units that may be charged beside tokens."""
    open: bool = False
    """Though a tier is asked for, the provider may add one of its own choosing, such as a place of processing."""

    @property
    def tier_may_be_dearer(self) -> bool:
        """May the tokens cost more than the usual price? A cheaper tier counts too: it may not be served."""
        return self.service_tier != "" or self.open


def surcharges(request: CompletionRequest, backend_dialect: DialectName) -> Surcharges | None:
    """Of `request` where it goes to a backend of that dialect.

    None, as nearly always: it leaves the tier to the provider, and no fee can arise.
    """
    body = request.body
    fees = _fees(body, request.model)
    if backend_dialect == "anthropic_messages":
        tier, is_open = _anthropic(body)
    elif request.dialect == "anthropic_messages":  # its hints are left out in translation
        tier, is_open = None, False
    else:
        tier, is_open = _openai(body.get("service_tier")), False
    return Surcharges(tier, fees, is_open) if tier is not None or fees else None


def held_price(price: Price, wanted: Surcharges | None) -> Price | None:
    """The price to hold money at: not below what any tier costs that may serve. None: nobody knows the tier asked for.

    `wanted`: of `surcharges`. A tier cheaper than the standard one is held at the standard price, which is charged
    where that tier is full.
    """
    if wanted is None or wanted.service_tier is None:
        return price.unasked()
    asked = price.at_least(wanted.service_tier)
    if asked is None or not wanted.open:
        return asked
    if asked is price:
        return price.unasked()
    parts = wanted.service_tier.split("+")
    names = ("+".join(sorted({*parts, one})) for one in price.choosable)
    return dearest_of([asked, *(tier for name in names if (tier := price.tiers.get(name)) is not None)])


def _openai(value: Any) -> str | None:
    """None where the project's own setting holds."""
    return None if value is None or value == "auto" else normalised(value)


def _anthropic(body: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The tier, and whether the workspace's place of processing holds beside. Chat may carry these fields too; its own
    `service_tier` is left out in translation, and Anthropic's asks for capacity that was paid ahead, at no price."""
    speed, geo = body.get("speed"), body.get("inference_geo")
    if speed is None and geo is None:
        return None, False
    tier = normalised(None, speed, geo)
    return (None, False) if not tier and geo is None else (tier, geo is None)


def _fees(body: Mapping[str, Any], model: str) -> tuple[str, ...]:
    found = _of_tools(tools) if type(tools := body.get("tools")) is list else set[str]()
    if "web_search_options" in body or "search_parameters" in body or "-search-" in model:
        fields = (body.get("web_search_options"), body.get("search_parameters"))
        if any(type(said) is dict for said in fields) or any(part in model for part in _SEARCHING):
            found.add(WEB_SEARCH)
    return tuple(sorted(found)) if found else ()


def _of_tools(tools: Iterable[Any]) -> set[str]:
    found = set[str]()
    for tool in tools:
        kind = tool.get("type") if type(tool) is dict else None
        if kind == "function" or type(kind) is not str:
            continue
        if kind == "shell" and type(place := tool.get("environment")) is dict and place.get("type") != "local":
            found.add(CODE_EXECUTION)
        found.update(unit for start, unit in _TOOLS if kind.startswith(start))
    return found
