"""Maps the service tier fields of all providers to one set of names."""

from __future__ import annotations

import re

STANDARD = frozenset(
    (
        *("", "default", "standard", "standard_only", "auto", "on_demand", "on-demand", "none", "null"),
        *("service_tier_unspecified", "service_tier_default", "service_tier_standard", "unspecified"),
        *("global", "not_available"),
    )
)
"""Names that providers use for the standard tier, speed or region. All of these have standard prices."""
_SAME = {
    "fast": "priority",  # since July 2026 OpenAI calls this tier fast mode; both names are in use
    "on_demand_priority": "priority",
    "on_demand_flex": "flex",
    "service_tier_priority": "priority",
    "service_tier_flex": "flex",
}
_FOREIGN = re.compile(r"[^a-z0-9_.:-]")
LONGEST = 32
"""Maximum characters of a tier's name. The limit is needed because a backend may report any text, and the ledger stores
the name."""


def normalised(service_tier: object = None, speed: object = None, geo: object = None) -> str:
    """The service tier in the form of `Usage.service_tier`, such as `priority` or `fast+us`; "": standard.
    `service_tier`: field of OpenAI and Anthropic. `speed`, `geo`: Anthropic's fields. Values that are not strings count
    as absent."""
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
