from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.cache.keys import epoch
from gateway.domain.tenant import Key, Tenant
from gateway.policy.load import Policies, load_policies
from gateway.policy.schema import json_schema
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Ceilings

SHIPPED = Path(__file__).parents[2] / "policies"
LEAST = "team: a\n"
EVERYTHING = """\
team: a
mode: observe
share: 25%
models:
  auto: {candidates: [small, large], quality: 92%, reference: large}
  gpt-4o: auto
  mini: [small]
cache: {scope: organisation, ttl: 7d, max_answer_bytes: 131072, quota_bytes: 134217728}
context: {max_input_tokens: 12000}
budget:
  - {limit_usd: 20, window: day, on_exhausted: downgrade}
  - {limit_usd: 300, hard: false}
trials: {share: 5%, cap_usd: 2, judge: exact}
limits: {requests_per_minute: 60}
data: {hosted: forbidden}
"""


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_the_shipped_policies_are_valid() -> None:
    assert {"default", "support", "research"} <= set(load_policies([SHIPPED], Ceilings()).policies)


def test_a_team_without_a_file_gets_the_default_policy_under_its_own_name(tmp_path: Path) -> None:
    write(tmp_path, "default.yaml", "team: default\ncache: {ttl: 1h}\n")
    policy, epoch = load_policies([tmp_path], Ceilings()).find("newcomers")
    assert (policy.team, policy.cache.ttl) == ("newcomers", 3600)
    assert epoch


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("team: a\nbudget:\n  limit_usd: 0\n", "a.yaml:3: budget.limit_usd: must be above 0"),
        ("team: a\nbugdet: {}\n", "a.yaml:2: bugdet: unknown key"),
        ("team: a\nmodels:\n  auto: {qualty: 1}\n", "a.yaml:3: models.auto.qualty: unknown key"),
        ("team: a\ncache:\n  scope: world\n", "a.yaml:3: cache.scope: must be 'key', 'team'"),
        ("team: a\nbudget: {limit_usd: 5, timezone: Europe/Nowhere}\n", "unknown time zone 'Europe/Nowhere'"),
        ("team: a\ntimezone: America\n", "unknown time zone 'America'"),  # a folder of zones
        (f"team: a\ntimezone: {'A' * 5000}\n", "unknown time zone 'AAAA"),  # longer than a file's name
        ("team: a\nmodels: {x: y, y: x}\n", "this alias leads back to itself; name a backend or a rule instead"),
        ("team: a\nteam: b\n", "the key 'team' occurs twice"),
        ("team: [\n", "not valid YAML"),
        ("", "team: is missing; add it"),
        ("team: a\nbudget: {limit_usd: 5, notify: [{webhook: 'http://10.0.0.1/'}]}\n", "must be env:NAME"),
        ("team: a\nmode: off\n", "mode: must be 'observe' or 'route', not 'off'"),
        ("team: a\nbudget: {limit_usd: 5, alerts: [forcast]}\n", "must be 'forecast'"),
        ("team: a\ncontext: {max_input_tokens: many}\n", "a.yaml:2: context.max_input_tokens"),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_remedy(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, "a.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load_policies([tmp_path], Ceilings())
    assert complaint in str(caught.value)


def test_a_share_that_is_too_high_is_one_mistake(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "team: a\nbudget: {limit_usd: 5, alerts: [500%]}\n")
    with pytest.raises(ConfigError) as caught:
        load_policies([tmp_path], Ceilings())
    assert str(caught.value).partition("a.yaml:2: ")[2] == ("budget.alerts.0: must lie between 0% and 100%, not '500%'")


def test_every_mistake_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "team: a\nx: 1\ny: 2\n")
    write(tmp_path, "b.yaml", "team: b\nz: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_policies([tmp_path], Ceilings())
    assert len(caught.value.problems) == 3


def test_two_files_for_one_team_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "team: a\n")
    write(tmp_path, "b.yaml", "team: a\n")
    with pytest.raises(ConfigError, match="has its policy in"):
        load_policies([tmp_path], Ceilings())


def test_a_team_forwards_no_more_than_the_operator_lets_it(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("team: a\ndata: {forward: [mcp, files]}\n")
    with pytest.raises(ConfigError, match=r"data\.forward: the operator does not allow mcp"):
        load_policies([tmp_path], Ceilings.model_validate({"forward": ["files"]}))
    assert load_policies([tmp_path], Ceilings()).find("a")[0].data.forward == ("mcp", "files")


def test_a_team_cannot_exceed_the_operators_ceilings(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "team: a\nbudget: {limit_usd: 900}\nlimits: {requests_per_minute: 50}\n")
    with pytest.raises(ConfigError) as caught:
        load_policies([tmp_path], Ceilings.model_validate({"limit_usd": 100, "requests_per_minute": 10}))
    assert "budget.limit_usd: 900 is above the operator's ceiling of 100" in str(caught.value)
    assert "limits.requests_per_minute" in str(caught.value)


def test_a_limit_left_open_becomes_the_ceiling(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "team: a\n")
    ceilings = Ceilings.model_validate({"requests_per_minute": 10, "hosted": "forbidden", "cache_scope": "key"})
    policy, _ = load_policies([tmp_path], ceilings).find("a")
    assert policy.limits.requests_per_minute == 10
    assert policy.data.hosted == "forbidden"
    assert policy.cache.scope == "key"


@pytest.mark.parametrize(("logged", "level"), [(True, "INFO"), (False, "DEBUG")])
async def test_the_supervisor_does_not_repeat_its_workers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, logged: bool, level: str
) -> None:
    caplog.set_level("DEBUG", "gateway.policy.load")
    policies = await asyncio.to_thread(lambda: Policies([tmp_path], Ceilings(), logged=logged))
    await policies.reload()
    write(tmp_path, "a.yaml", "team: a\ncache: {ttl: never}\n")
    await policies.reload()
    found = [(one.levelname, one.getMessage().partition(":")[0].partition(";")[0]) for one in caplog.records]
    assert found == [
        (level, "policies reloaded"), ("ERROR" if logged else "DEBUG", "policies not reloaded"),
    ]  # fmt: skip


async def test_a_bad_reload_keeps_the_last_good_set_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "team: a\ncache: {ttl: 1h}\n")
    policies = await asyncio.to_thread(Policies, [tmp_path], Ceilings())
    heard: list[int] = []
    policies.on_change(lambda: heard.append(1))
    write(tmp_path, "a.yaml", "team: a\ncache: {ttl: never}\n")
    assert not await policies.reload()
    assert "cache.ttl" in policies.problem
    assert policies.current.find("a")[0].cache.ttl == 3600
    write(tmp_path, "a.yaml", "team: a\ncache: {ttl: 2h}\n")
    assert await policies.reload()
    assert policies.current.find("a")[0].cache.ttl == 7200
    assert (policies.problem, heard) == ("", [1])


def test_a_changed_rule_gives_a_new_epoch_but_a_changed_budget_does_not(tmp_path: Path) -> None:
    epochs = []
    for text in ("", "budget: {limit_usd: 5}\n", "cache: {ttl: 1h}\n"):
        write(tmp_path, "a.yaml", "team: a\n" + text)
        epochs.append(load_policies([tmp_path], Ceilings()).find("a")[1])
    assert epochs[0] == epochs[1] != epochs[2]


def test_the_json_schema_knows_every_key() -> None:
    schema = json_schema()
    assert set(schema["properties"]) >= {"team", "models", "cache", "context", "budget", "limits", "data"}
    assert schema["additionalProperties"] is False


def test_an_upgrade_keeps_the_fingerprints_of_unchanged_files(tmp_path: Path) -> None:
    """Cached answers are found by them. Written down from the version that knew only the keys' first names."""
    fingerprints = []
    for text in (LEAST, EVERYTHING):
        write(tmp_path, "a.yaml", text)
        policy, fingerprint = load_policies([tmp_path], Ceilings()).find("a")
        fingerprints.append((fingerprint, epoch(Tenant(Key("k", "a"), policy, fingerprint))))
    assert fingerprints == [("34ca603364825a32", "34ca603364825a32"), ("ddc09936776dfda3", "1a27f83bf8f6a323")]


def test_the_teams_time_zone_is_that_of_budgets_without_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.yaml",
        "team: a\ntimezone: Europe/Madrid\nbudget: [{limit_usd: 1}, {limit_usd: 9, timezone: Asia/Tokyo}]\n",
    )
    write(tmp_path, "b.yaml", "team: b\nbudget: {limit_usd: 1}\n")
    policies = load_policies([tmp_path], Ceilings())
    assert [each.timezone for each in policies.find("a")[0].budget] == ["Europe/Madrid", "Asia/Tokyo"]
    assert [each.timezone for each in policies.find("b")[0].budget] == ["UTC"]
    write(tmp_path, "c.yaml", "team: c\ntimezone: Mars/Base\nbudget: {limit_usd: 1}\n")
    with pytest.raises(ConfigError, match=r"c\.yaml:2: timezone: unknown time zone 'Mars/Base'"):
        load_policies([tmp_path], Ceilings())


def test_a_changed_time_zone_empties_no_cache(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", LEAST)
    before = load_policies([tmp_path], Ceilings()).find("a")[1]
    write(tmp_path, "a.yaml", LEAST + "timezone: Asia/Tokyo\n")
    assert load_policies([tmp_path], Ceilings()).find("a")[1] == before
