"""Maps providers' service tier fields to one name."""

from __future__ import annotations

import re

STANDARD = frozenset(
    (
        *("", "default", "standard", "standard_only", "auto", "on_demand", "on-demand", "none", "null"),
        *("service_tier_unspecified", "service_tier_default", "service_tier_standard", "unspecified"),
        *("global", "not_available"),
    )
)
"""Names of a provider's usual tier, speed or place of processing, at which its usual prices hold."""
_SAME = {
    "fast": "priority",  # OpenAI's priority processing is called fast mode since July 2026; both names are in use
    "on_demand_priority": "priority",
    "on_demand_flex": "flex",
    "service_tier_priority": "priority",
    "service_tier_flex": "flex",
}
_FOREIGN = re.compile(r"[^a-z0-9_.:-]")
LONGEST = 32
"""Characters of one name that are kept: a backend may report anything, and ledger and journal keep it."""


def normalised(service_tier: object = None, speed: object = None, geo: object = None) -> str:
    """The name in `Usage.service_tier`: "" for the standard tier, else e.g. `priority`, `fast`, `fast+us`.

    `service_tier`: OpenAI's and Anthropic's field of that name; its value `fast` is another name of OpenAI's for
    `priority`. `speed` and `geo`: Anthropic's `speed` and `inference_geo`. What is not a string counts as absent.
    """
    if speed is None and geo is None:
        return _tier(service_tier) if type(service_tier) is str else ""
    parts = {_named(value) for value in (speed, geo) if type(value) is str}
    if type(service_tier) is str:
        parts.add(_tier(service_tier))
    return "+".join(sorted(parts - {""}))


def _tier(value: str) -> str:
    name = _named(value)
    return _SAME.get(name, name)


def _named(value: str) -> str:
    if value in STANDARD:
        return ""
    name = value[: 2 * LONGEST].strip().lower()
    return "" if name in STANDARD else _FOREIGN.sub("_", name)[:LONGEST]
