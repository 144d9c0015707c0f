"""The first gateway.yaml and policies: valid, explained, without secrets, and never over existing files."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.cli.operation.init import asked
from gateway.domain.backend import Backend
from gateway.policy.load import load_policies
from gateway.settings.environment import PROVIDER_KEYS
from gateway.settings.gateway import Ceilings, load_settings

LITELLM = """\
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/my-deployment
      api_base: https://x.openai.azure.com
      api_key: os.environ/AZURE_KEY
      api_version: "2024-10-21"
      rpm: 100
  - model_name: gpt-4o
    litellm_params: {model: gpt-4o, api_key: sk-written-in-the-file}
  - model_name: claude
    litellm_params: {model: "bedrock/anthropic.claude-sonnet-4-20250514-v1:0", aws_region_name: us-east-1}
  - model_name: "anthropic/*"
    litellm_params: {model: "anthropic/*"}
  - model_name: cheap
    litellm_params:
      model: ollama/llama3.2:3b
      api_base: http://127.0.0.1:11434
      input_cost_per_token: 0.0000001
      output_cost_per_token: 0.0000004
  - model_name: far
    litellm_params: {model: vertex_ai/gemini-2.5-pro}
  - 3
litellm_settings: {drop_params: true}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and no provider's key."""
    for name in PROVIDER_KEYS.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def backends(monkeypatch: pytest.MonkeyPatch, **keys: str) -> dict[str, Backend]:
    """Those of gateway.yaml as `serve` reads them."""
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    return {each.name: each for each in load_settings(Path("gateway.yaml")).config.backends or ()}


def test_found_backends_become_a_valid_file_that_names_keys_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-one")
    monkeypatch.setenv("GROQ_API_KEY", "gsk-secret-two")
    done = run("init", "--team", "search", "--budget", "200", "--slack", "env:SEARCH_SLACK")
    assert done.exit_code == 0, done.output
    text = Path("gateway.yaml").read_text()
    assert "sk-secret" not in text
    for key in ("kind", "model", "api_key"):
        (first, *others) = [line for line in text.splitlines() if line.strip().startswith(f"{key}: ")]
        assert "  # " in first
        assert not any("#" in line for line in others)
    found = backends(monkeypatch)
    assert {"gpt-4o-mini", "gpt-4o", "groq/openai/gpt-oss-20b"} <= set(found)
    assert all(found[name].api_key for name in found)
    policies = load_policies([Path("policies")], Ceilings())
    policy, _ = policies.find("search")
    assert policy.team == "search"
    assert str(policy.budget[0].limit_usd) == "200"
    assert [each.target for each in policy.budget[0].notify] == ["slack:env:SEARCH_SLACK"]
    assert "thriftgate connect" in done.output


def test_without_any_backend_nothing_is_written() -> None:
    done = run("init")
    assert done.exit_code == 1
    assert "OPENAI_API_KEY" in done.output
    assert not Path("gateway.yaml").exists()
    assert not Path("policies").exists()


@pytest.mark.parametrize("name", ["gateway.yaml", "policies/search.yaml"])
def test_existing_files_are_never_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    done = run("init", "--team", "search")
    assert done.exit_code == 1
    assert f"{name} exists already" in done.output
    assert path.read_text() == "mine"
    assert sum(1 for each in Path().rglob("*.yaml")) == 1


def test_a_litellm_config_becomes_backends_and_aliases_and_the_rest_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("config.yaml").write_text(LITELLM)
    done = run("init", "--from", "config.yaml", "--team", "search", "--json")
    assert done.exit_code == 0, done.output
    told = orjson.loads(done.stdout)
    assert told["problems"] == []
    found = backends(monkeypatch, AZURE_KEY="a", KEY_OF_GPT_4O_2="b")
    assert set(found) == {"gpt-4o", "gpt-4o-2", "claude", "cheap", "far"}
    azure = found["gpt-4o"]
    assert (azure.kind, azure.deployment, azure.api_version, azure.model) == (
        "azure",
        "my-deployment",
        "2024-10-21",
        "gpt-4o",
    )
    assert (found["claude"].kind, found["claude"].region) == ("bedrock", "us-east-1")
    cheap = found["cheap"]
    assert (cheap.base_url, cheap.model) == ("http://127.0.0.1:11434/v1", "llama3.2:3b")
    assert cheap.price is not None
    assert float(cheap.price.input or 0) == 0.1
    assert found["far"].kind == "litellm"
    policy, _ = load_policies([Path("policies")], Ceilings()).find("search")
    rule = policy.rule("gpt-4o")
    assert rule is not None
    assert not isinstance(rule, str)
    assert list(rule.candidates) == ["gpt-4o", "gpt-4o-2"]
    assert [note.partition(": ")[0] for note in told["notes"]] == [
        "config.yaml:8",
        "config.yaml:9",
        "config.yaml:13",
        "config.yaml:23",
        "config.yaml:24",
    ]
    assert "sk-written-in-the-file" not in Path("gateway.yaml").read_text() + done.output


@pytest.mark.parametrize("text", ["a: [", "[]", "model_list: 3", "x: 1"])
def test_a_file_that_is_no_litellm_config_is_refused(text: str) -> None:
    Path("config.yaml").write_text(text)
    done = run("init", "--from", "config.yaml")
    assert done.exit_code == 1
    assert "config.yaml" in done.output
    assert not Path("gateway.yaml").exists()


def test_team_add_writes_a_valid_policy() -> None:
    done = run("team", "add", "search", "--budget", "12.50", "--email", "env:MAILS")
    assert done.exit_code == 0, done.output
    policy, _ = load_policies([Path("policies")], Ceilings()).find("search")
    assert float(policy.budget[0].limit_usd) == 12.5
    again = run("team", "add", "search")
    assert again.exit_code == 1
    assert "is not changed" in again.output


def test_a_name_that_no_team_can_have_is_refused_in_a_full_sentence() -> None:
    for words in (("team", "add", "two words"), ("init", "--team", "two words")):
        assert "Error: The team's name must be at most 64 letters" in run(*words).output


def test_team_add_obeys_the_receivers_of_gateway_yaml() -> None:
    Path("gateway.yaml").write_text("receivers: {ops: {slack: env:OPS_SLACK}}\n")
    words = ("team", "add", "search", "--budget", "200")
    refused = run(*words, "--slack", "env:MY_SLACK")
    assert refused.exit_code == 1
    assert "env:MY_SLACK is not allowed in a policy" in refused.output
    assert "--receiver with one of ops" in refused.output
    assert not Path("policies").exists()
    assert run(*words, "--receiver", "ops").exit_code == 0
    policy, _ = load_policies([Path("policies")], Ceilings()).find("search")
    assert [each.target for each in policy.budget[0].notify] == ["receiver:ops"]


def test_team_add_leaves_no_file_that_would_stop_the_other_policies() -> None:
    Path("policies").mkdir()
    Path("policies/bases.yaml").write_text("teams: {alpha: {}}\nbases: {careful: {cache: {enabled: false}}}\n")
    refused = run("team", "add", "alpha")
    assert refused.exit_code == 1
    assert "alpha" in refused.output
    assert [each.name for each in Path("policies").iterdir()] == ["bases.yaml"]
    assert run("team", "add", "beta", "--extends", "nosuch").exit_code == 1
    assert run("team", "add", "beta", "--extends", "careful").exit_code == 0
    policy, _ = load_policies([Path("policies")], Ceilings()).find("beta")
    assert not policy.cache.enabled


def test_team_add_warns_if_the_running_gateway_does_not_read_the_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    facts = {"pid": os.getpid(), "url": "http://127.0.0.1:1", "workers": [], "started_at": 0}
    (data / "runtime.json").write_bytes(orjson.dumps({**facts, "policies": [str(tmp_path / "theirs")]}))
    Path("policies").mkdir()
    done = run("team", "add", "search", "--data-dir", str(data))
    assert done.exit_code == 0, done.output
    assert f"does not read policies; it reads {tmp_path / 'theirs'}" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("team", "add", "a/b"), "a/b"),
        (("team", "add", "search", "--budget", "many"), "--budget must be a number"),
        (("team", "add", "search", "--budget", "-1"), "above 0"),
        (("team", "add", "search", "--budget", "nan"), "budget"),
        (("team", "add", "search", "--slack", "env:X"), "add --budget"),
        (("team", "add", "search", "--budget", "1", "--slack", "https://hooks.example/secret"), "must be env:NAME"),
        (("team", "add", "search", "--budget", "1", "--msteams", "env:lower_case"), "a name in capitals"),
        (("team", "add", "search", "--budget", "1", "--pagerduty", "env:TOKEN"), "must have PAGERDUTY in its name"),
        (("team", "add", "search", "--budget", "1", "--apprise", "env:X"), "No such option"),
        (("init", "--team", ".."), ".."),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(words: tuple[str, ...], complaint: str) -> None:
    done = run(*words)
    assert done.exit_code == 2, done.output
    assert complaint in done.output
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", ["on", "123", "no", "x: y", "gpt#4"])
def test_names_that_yaml_would_read_as_something_else_stay_names(name: str) -> None:
    Path("config.yaml").write_text(
        yaml.safe_dump({"model_list": [{"model_name": name, "litellm_params": {"model": "ollama/m"}}] * 2})
    )
    done = run("init", "--from", "config.yaml", "--json")
    assert done.exit_code == 0, done.output
    assert orjson.loads(done.stdout)["problems"] == []
    policy, _ = load_policies([Path("policies")], Ceilings()).find("default")
    assert policy.rule(name) is not None


def test_a_litellm_config_without_a_usable_model_is_refused_with_the_reasons() -> None:
    Path("config.yaml").write_text("model_list:\n  - 3\n  - {model_name: a, litellm_params: {model: azure/x}}\n")
    done = run("init", "--from", "config.yaml")
    assert done.exit_code == 1
    assert "config.yaml:2" in done.output
    assert "config.yaml:3" in done.output
    assert "export a provider's key" not in done.output
    assert not Path("gateway.yaml").exists()


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ("search\n200\nslack\n\n", ("search", "200", {"slack": "env:SEARCH_SLACK"})),
        ("\n\n", ("default", None, {})),
        ("\n5\n\n", ("default", "5", {})),
    ],
)
def test_on_a_terminal_team_budget_and_receiver_are_asked_for(
    answers: str, found: tuple[str, str | None, dict[str, str]]
) -> None:
    with CliRunner().isolation(input=answers):
        team, budget, addresses = asked("default")
    assert (team, budget, {kind: name for kind, name in addresses.items() if name}) == found
