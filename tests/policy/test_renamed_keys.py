"""Keys under their old and their new name: the same settings, complaints in the file's own words, never both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.domain.policy import Policy
from gateway.policy.load import load_policies
from gateway.policy.schema import json_schema
from gateway.settings.files import ConfigError, old_names, parse
from gateway.settings.gateway import Ceilings, GatewayConfig
from gateway.settings.renamed_keys import KEYS

BACKEND = 'backends: [{name: b, kind: openai, base_url: "http://127.0.0.1:9/v1", model: m, %s}]\n'
OF_ACME = "organisations: {acme: {budget: %s}}\n"
SAME: list[tuple[type[Any], str, str, str]] = [
    (Policy, "share: 50%\n", "rollout: 50%\n", "share"),
    (Policy, "trials: {judge: exact}\n", "learning: {judge: exact}\n", "trials"),
    (Policy, "budget: {limit_usd: 1, window: day}\n", "budget: {limit_usd: 1, period: day}\n", "window"),
    (Policy, "budget: [{limit_usd: 1, window: day}]\n", "budget: [{limit_usd: 1, period: day}]\n", "window"),
    (
        Policy,
        "budget: {limit_usd: 1, on_exhausted: downgrade}\n",
        "budget: {limit_usd: 1, on_exhausted: free_only}\n",
        "on_exhausted: downgrade",
    ),
    (Policy, "budget: {limit_usd: 1, hard: false}\n", "budget: {limit_usd: 1, on_exhausted: warn}\n", "hard: false"),
    (Policy, "models: {m: {reference: b}}\n", "models: {m: {baseline: b}}\n", "reference"),
    (GatewayConfig, BACKEND % "window_tokens: 9", BACKEND % "context_window: 9", "window_tokens"),
    (GatewayConfig, BACKEND % "concurrent: 9", BACKEND % "max_parallel_requests: 9", "concurrent"),
    (GatewayConfig, BACKEND % "queue: 9", BACKEND % "max_pending_requests: 9", "queue"),
    (GatewayConfig, BACKEND % "tier: small", BACKEND % "strength: small", "tier"),
    (GatewayConfig, BACKEND % "tier: large", BACKEND % "strength: large", "tier"),
    (GatewayConfig, BACKEND % "tier: hosted, location: hosted", BACKEND % "strength: small, location: hosted", "tier"),
    (GatewayConfig, BACKEND % "tier: large, location: local", BACKEND % "strength: large, location: local", "tier"),
    (GatewayConfig, "requests: {stall: 9s}\n", "requests: {client_write_timeout: 9s}\n", "stall"),
    (GatewayConfig, "requests: {drain: 9s}\n", "shutdown: {grace_period: 9s}\n", "requests.drain"),
    (
        GatewayConfig,
        "requests: {drain: 9s, concurrent: 7}\n",
        "shutdown: {grace_period: 9s}\nrequests: {concurrent: 7}\n",
        "requests.drain",
    ),
    (
        GatewayConfig,
        "requests: {drain: 9s, drain_delay: 2s}\n",
        "shutdown: {grace_period: 9s, drain_delay: 2s}\n",
        "requests.drain_delay",
    ),
    (GatewayConfig, "routing: {artefact: packaged.json}\n", "routing: {plan_file: packaged.json}\n", "artefact"),
    (GatewayConfig, "trials: {window: week}\n", "learning: {window: week}\n", "trials"),
    (
        GatewayConfig,
        OF_ACME % "{limit_usd: 1, window: day, hard: false}",
        OF_ACME % "{limit_usd: 1, period: day, on_exhausted: warn}",
        "window",
    ),
]


@pytest.mark.parametrize(("model", "old", "new", "name"), SAME, ids=[each[2].strip()[:60] for each in SAME])
def test_both_names_are_the_same_setting(model: type[Any], old: str, new: str, name: str, tmp_path: Path) -> None:
    rest = "team: team\n" if model is Policy else ""
    assert parse(old + rest, model, "old") == parse(new + rest, model, "new") != parse(rest, model, "rest")
    for text, told in ((old + rest, True), (new + rest, False)):
        path = tmp_path / "file.yaml"
        path.write_text(text)
        found = old_names(path, model)
        assert any(f"{path}:1: {name} is called" in each for each in found) is told, found
        assert bool(found) is told


def test_every_alias_is_tried() -> None:
    for model, keys in KEYS.items():
        tried = " ".join(new for which, _, new, _ in SAME if which.__name__ == model)
        for each in keys:
            assert each.new.rpartition(".")[2] in tried, each


@pytest.mark.parametrize(
    ("model", "text", "told"),
    [
        (Policy, "share: 1\nrollout: 1\n", "f:2: rollout: stands beside share, its old name; remove share"),
        (Policy, "budget:\n  window: day\n  period: day\n", "f:3: period: stands beside window, its old name"),
        (Policy, "budget: {hard: false, on_exhausted: warn}\n", "f:1: on_exhausted: warn stands beside hard"),
        (GatewayConfig, "shutdown: {grace_period: 1s}\nrequests: {drain: 1s}\n", "f:1: .*beside requests.drain"),
        (GatewayConfig, "shutdown: {grace: 1s}\n", "f:1: shutdown.grace: unknown key; there are grace_period"),
        (GatewayConfig, "shutdown: 3\n", "f:1: shutdown: must be a mapping with grace_period"),
        (GatewayConfig, BACKEND % "tier: small, strength: small", "f:1: strength: stands beside tier"),
        (GatewayConfig, BACKEND % "strength: hosted", "f:1: strength: must be small or large"),
        (GatewayConfig, BACKEND % "strength: {a: b}", "f:1: strength: must be small or large"),
    ],
)
def test_an_old_and_a_new_name_together_are_a_mistake(model: type[Any], text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{told}"):
        parse(text, model, "f")


@pytest.mark.parametrize(
    ("model", "text", "told"),
    [
        (Policy, "\nrollout: 7\n", "f:2: rollout: must lie between"),
        (Policy, "budget:\n  limit_usd: 1\n  period: year\n", "f:3: budget.*.period: must be"),
        (Policy, "budget: {limit_usd: 1, on_exhausted: nothing}\n", "f:1: budget.*.on_exhausted: must be"),
        (GatewayConfig, BACKEND % "context_window: -1", "f:1: backends.0.context_window: "),
        (GatewayConfig, "shutdown: {grace_period: soon}\n", "f:1: shutdown.grace_period: must be a duration"),
    ],
)
def test_a_complaint_names_the_key_as_the_file_does(model: type[Any], text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(text, model, "f")


def test_new_names_are_found_through_aliases_and_merges() -> None:
    text = """\
backends:
  - &first {name: a, kind: openai, base_url: "http://127.0.0.1:9/v1", model: m, context_window: 9, strength: small}
  - {<<: *first, name: b, max_parallel_requests: 3}
"""
    config = parse(text, GatewayConfig, "f")
    assert config.backends is not None
    found = [(each.window_tokens, each.tier, each.concurrent) for each in config.backends]
    assert found == [(9, "small", 1024), (9, "small", 3)]


def test_a_file_and_its_translation_have_one_fingerprint(tmp_path: Path) -> None:
    """An upgrade of the file's words must not empty caches."""
    prints = []
    for name, text in {
        "old": "share: 50%\nbudget: {limit_usd: 1, window: day, hard: false}\nmodels: {m: {reference: b}}\n",
        "new": "rollout: 50%\nbudget: {limit_usd: 1, period: day, on_exhausted: warn}\nmodels: {m: {baseline: b}}\n",
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "team.yaml").write_text(f"{text}team: team\n")
        prints.append(load_policies([folder], Ceilings()).find("team")[1])
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    ("size", "told"), [("20MiB", 20 * 2**20), ("1.5GB", 1_500_000_000), ("4096", 4096), ("7 KiB", 7168), ("'9'", 9)]
)
def test_sizes_have_units(size: str, told: int) -> None:
    assert parse(f"requests: {{max_body_bytes: {size}}}\n", GatewayConfig, "f").requests.max_body_bytes == told


@pytest.mark.parametrize("size", ["20 Mib", "-1", "'1e9'", "MiB", '""', "0B", f"'{'9' * 30}'", "[1]"])
def test_what_is_no_size_is_a_mistake(size: str) -> None:
    with pytest.raises(ConfigError, match=r"f:1: requests\.max_body_bytes: "):
        parse(f"requests: {{max_body_bytes: {size}}}\n", GatewayConfig, "f")


def test_the_schema_for_editors_knows_both_names() -> None:
    schema = json_schema()
    assert orjson.dumps(schema)
    assert schema["properties"]["share"]["deprecated"] is True
    assert "deprecated" not in schema["properties"]["rollout"]
    budget = schema["$defs"]["Budget"]["properties"]
    assert {"window", "period"} <= budget.keys()
    assert {"free_only", "warn", "downgrade"} <= set(budget["on_exhausted"]["enum"])
