"""Every PromQL expression of dashboard and rules, and what it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson
import promql_parser
import yaml

from tests.docs.markdown import REFERENCE, ROOT, cells
from tests.docs.reference.blocks import generated

DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "thriftgate.json"
RULES = DEPLOY / "prometheus" / "rules.yml"
NOT_OURS = {"up", "ALERTS"}
"""Prometheus' own series."""
ADDED = {"instance", "job", "le", "alertname", "alertstate"}
"""Labels that are not the gateway's to give."""


def panels() -> list[dict[str, Any]]:
    """Those of the dashboard that show something."""
    return [panel for panel in orjson.loads(DASHBOARD.read_bytes())["panels"] if panel["type"] != "row"]


def plain(query: str, interval: str = "5m") -> str:
    """A panel's query as Grafana sends it, for all hosts and teams."""
    for name, value in {"$__rate_interval": interval, "$__range": interval, "$instance": ".*", "$team": ".*"}.items():
        query = query.replace(name, value)
    return query


def shown() -> dict[str, str]:
    """Panel and legend → query."""
    return {
        f"{panel['title']}: {target['legendFormat']}": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def all_queries() -> dict[str, str]:
    found = {name: plain(query) for name, query in shown().items()}
    found.update({rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()})
    dashboard = orjson.loads(DASHBOARD.read_bytes())
    for variable in dashboard["templating"]["list"]:
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        found[f"variable {variable['name']}"] = f"group by ({label}) ({name})"
    return found | {f"annotation {note['name']}": note["expr"] for note in dashboard["annotations"]["list"]}


def series(node: Any) -> Iterator[tuple[str, set[str]]]:
    """Each metric that a parsed query reads, with the labels that it matches or groups by."""
    grouped = getattr(node, "modifier", None)
    labels = set(grouped.labels) if hasattr(grouped, "labels") else set()
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name, {matcher.name for matcher in node.matchers.matchers}
    below = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    for part in (*below, *(getattr(node, "args", None) or ())):
        if part is not None:
            for name, matched in series(part):
                yield name, matched | labels


def labels_of() -> dict[str, set[str]]:
    """Metric as scraped → its labels, as the reference has them (another test compares it with the code)."""
    found: dict[str, set[str]] = {}
    (text,) = generated(REFERENCE / "metrics.md", "metrics")
    for name, kind, labels, _ in [cells(line) for line in text.splitlines()][2:]:
        told = {label for label in labels.split(", ") if label}
        suffixes = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
        found.update({name.strip("`") + suffix: told for suffix in suffixes})
    return found
