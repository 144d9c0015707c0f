"""Charges that a request may cause in addition to the token price: the service tier and the fees of tools.

Vendors charge fees per use of a tool. OpenAI charges web search, code execution (a container) and file search.
Anthropic charges web search and code execution. xAI charges web search and X search. Images that a chat model creates
are charged as the output of another model. Some tools cost only tokens: page fetches, computer use, shells that the
client runs, MCP servers and tool search.

https://developers.openai.com/api/docs/pricing, https://platform.claude.com/docs/en/about-claude/pricing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
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
"""Units of fees. The names are those in `Usage.fees`."""

_TOOLS = (
    ("web_search", WEB_SEARCH),
    ("x_search", WEB_SEARCH),
    ("code_interpreter", CODE_EXECUTION),
    ("code_execution", CODE_EXECUTION),
    ("file_search", FILE_SEARCH),
    ("image_generation", IMAGE_GENERATION),
)
"""(Prefix of a tool's type, unit of the fee). The type of a tool may end in a date or `_preview`."""
_OWN = frozenset({None, "function"})
"""Types of the client's own tools."""
_TYPE = methodcaller("get", "type")
_SEARCHING = ("-search-preview", "-search-api")
"""Parts of the names of models that search the web for each answer."""


@dataclass(frozen=True, slots=True)
class Surcharges:
    """The service tier and the fees that a request may cause."""

    service_tier: str | None
    """The requested tier, in the format of `Usage.service_tier`; None: the provider chooses the tier."""
    fees: tuple[str, ...] = ()
    """Units of the fees that may be charged in addition to tokens."""
    open: bool = False
    """Whether the provider may combine the requested tier with another tier, such as a processing region."""


def surcharges(request: CompletionRequest, backend_dialect: DialectName) -> Surcharges | None:
    """The charges, in addition to the token price, that `request` may cause at a backend. Usually None, because no
    fee is possible.

    `backend_dialect`: the backend's dialect.
    """
    body = request.body
    fees = _fees(body, request.model)
    if backend_dialect == "anthropic_messages":
        tier, is_open = _anthropic(body)
    elif request.dialect == "anthropic_messages":  # the translation removes Anthropic's tier fields
        tier, is_open = None, False
    else:
        tier, is_open = _openai(body.get("service_tier")), False
    return Surcharges(tier, fees, is_open) if tier is not None or fees else None


def held_price(price: Price, wanted: Surcharges | None) -> Price | None:
    """The price from which a hold is computed. The hold must be sufficient for every service tier that the provider may
    use. None if the price of such a tier is unknown.

    `wanted`: the result of `surcharges`.
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
    """The requested tier; None if the OpenAI project's settings decide."""
    return None if value is None or value == "auto" else normalised(value)


def _anthropic(body: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The requested tier, and whether the workspace's processing region also determines the price. The field
    `service_tier` is ignored: it selects prepaid capacity without a price."""
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
    with suppress(AttributeError, TypeError):  # a tool is not an object, or its type is not a string
        if _OWN.issuperset(map(_TYPE, tools)):  # this is faster than the loop
            return found
    for tool in tools:
        kind = tool.get("type") if type(tool) is dict else None
        if type(kind) is not str:
            continue
        if kind == "shell" and type(place := tool.get("environment")) is dict and place.get("type") != "local":
            found.add(CODE_EXECUTION)
        found.update(unit for start, unit in _TOOLS if kind.startswith(start))
    return found
