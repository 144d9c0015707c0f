"""The table of metrics, as `/metrics` names them."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.telemetry.exposition import Collector
from gateway.telemetry.host import Host


def metrics_table(kept: Mapping[str, str], arguments: tuple[str, ...]) -> str:
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in Collector(Host()).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        meaning = kept.get(name, family.documentation)
        lines.append(f"| `{name}` | {family.type} | {', '.join(family._labelnames)} | {meaning} |")
    return "\n".join(lines) + "\n"
