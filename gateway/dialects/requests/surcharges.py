"""Charges that a request may cause in addition to the token price: service tier and tool fees.

Vendors charge fees per use. OpenAI charges web search, code execution (a container) and file search; Anthropic charges
web search and code execution; xAI charges web and X search. Images that a chat model creates are charged as another
model's output. Page fetches, computer use, client-run shells, MCP servers and tool search cost tokens only.

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
"""Fee units, with the names used in `Usage.fees`."""

_TOOLS = (
    ("web_search", WEB_SEARCH),
    ("x_search", WEB_SEARCH),
    ("code_interpreter", CODE_EXECUTION),
    ("code_execution", CODE_EXECUTION),
    ("file_search", FILE_SEARCH),
    ("image_generation", IMAGE_GENERATION),
)
"""(Prefix of a tool's type, fee unit). Types may end in a date or `_preview`."""
_SEARCHING = ("-search-preview", "-search-api")
"""Parts of the names of models that search the web for each answer."""


@dataclass(frozen=True, slots=True)
class Surcharges:
    """The service tier and the fees that a request may cause."""

    service_tier: str | None
    """The requested tier, named as in `Usage.service_tier`; None: the provider chooses."""
    fees: tuple[str, ...] = ()
    """Fee units that may be charged in addition to tokens."""
    open: bool = False
    """Whether the provider may add another tier to the requested one, such as a processing region."""


def surcharges(request: CompletionRequest, backend_dialect: DialectName) -> Surcharges | None:
    """The surcharges of `request` at a backend of that dialect.

    Usually None, which means that the provider chooses the tier and no fee can arise.
    """
    body = request.body
    fees = _fees(body, request.model)
    if backend_dialect == "anthropic_messages":
        tier, is_open = _anthropic(body)
    elif request.dialect == "anthropic_messages":  # translation removes its tier fields
        tier, is_open = None, False
    else:
        tier, is_open = _openai(body.get("service_tier")), False
    return Surcharges(tier, fees, is_open) if tier is not None or fees else None


def held_price(price: Price, wanted: Surcharges | None) -> Price | None:
    """The price at which money is held: at least the price of any tier that may be used. None: the price of the tier is
    unknown.

    `wanted`: result of `surcharges`. For a tier cheaper than the standard one, the standard price is held, because it
    is charged if that tier is full.
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
    """The tier; None if the tier set in the project's settings applies."""
    return None if value is None or value == "auto" else normalised(value)


def _anthropic(body: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The tier, and whether the workspace's processing region also applies.

    Chat requests may have `speed` and `inference_geo`. `service_tier` is ignored: translation removes OpenAI's field,
    and Anthropic's field selects prepaid capacity, which has no price.
    """
    speed, geo = body.get("speed"), body.get("inference_geo")
    if speed is None and geo is None:
        return None, False
    tier = normalised(None, speed, geo)
    return (None, False) if not tier and geo is None else (tier, geo is None)


def _fees(body: Mapping[str, Any], model: str) -> tuple[str, ...]:
    found = _of_tools(tools) if type(tools := body.get("tools")) is list else set[str]()
    if "web_search_options" in body or "search_parameters" in body or "-search-" in model:
        fields = (body.get("web_search_options"), body.get("search_parameters"))
        if any(type(field) is dict for field in fields) or any(part in model for part in _SEARCHING):
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
