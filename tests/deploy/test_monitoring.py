"""Dashboard, rules and provisioning name what the gateway tells, and each other."""

from __future__ import annotations

import httpx
import orjson
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.queries import (
    ADDED,
    DASHBOARD,
    DEPLOY,
    NOT_OURS,
    all_queries,
    labels_of,
    panels,
    plain,
    rules,
    series,
    shown,
)
from tests.e2e.conftest import gateway, ports  # noqa: F401 - fixtures
from tests.e2e.gateway_process import GatewayProcess


@pytest.mark.parametrize("name", all_queries())
def test_a_query_reads_metrics_and_labels_that_there_are(name: str) -> None:
    known, recorded = labels_of(), {rule["record"] for rule in rules() if "record" in rule}
    for metric, labels in series(promql_parser.parse(all_queries()[name])):
        if metric not in NOT_OURS | recorded:
            assert metric in known
            assert labels <= known[metric] | ADDED


async def test_every_metric_that_is_read_is_in_a_real_scrape(gateway: GatewayProcess) -> None:  # noqa: F811
    key = await gateway.key("ops", "--scope", "admin")
    async with httpx.AsyncClient(timeout=30) as http:
        scraped = (await http.get(f"{gateway.base}/metrics", headers={"authorization": f"Bearer {key}"})).text
    there: set[str] = set()
    for family in text_string_to_metric_families(scraped):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        there.update(family.name + suffix for suffix in suffixes)
    read = {metric for query in all_queries().values() for metric, _ in series(promql_parser.parse(query))}
    assert {metric for metric in read if metric.startswith("thriftgate_")} <= there


def test_the_dashboard_is_whole() -> None:
    dashboard = orjson.loads(DASHBOARD.read_bytes())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    for panel in panels():
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": source["type"], "uid": source["uid"]}
    taken = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, panel["title"]
                taken.add((x, y))


def test_a_team_can_be_chosen_wherever_a_metric_has_teams() -> None:
    dashboard = orjson.loads(DASHBOARD.read_bytes())
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["instance", "team"]
    tiles = [panel for panel in panels() if panel["type"] == "stat"]
    assert len(tiles) >= 6
    known = labels_of()
    for name, query in shown().items():
        for metric, labels in series(promql_parser.parse(plain(query))):
            wanted = {"instance", "team"} if "team" in known[metric] else {"instance"}
            assert wanted <= labels, f"{name}: {metric} is not narrowed to the chosen hosts and teams"


def test_every_alert_says_what_happened_and_where_to_look() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) >= 10
    for alert in alerts:
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert alert["annotations"].keys() == {"summary", "look"}


def test_the_collectors_pipelines_are_made_of_what_it_defines() -> None:
    config = yaml.safe_load((DEPLOY / "compose/collector.yaml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for kind, parts in pipeline.items():
            assert set(parts) <= config[kind].keys()
    assert config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
