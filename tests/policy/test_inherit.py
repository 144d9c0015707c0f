"""Bases that teams extend, and several teams in one file."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.domain.policy import Policy
from gateway.policy.effective import effective
from gateway.policy.kept import keep, kept
from gateway.policy.load import Policies, PolicySet, load_policies, reload_policies
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Ceilings

STRICT = """\
base: strict
organisation: acme
cache: {ttl: 1h, scope: key}
budget: {limit_usd: 50, alerts: [50%]}
models:
  auto: {quality: 90%}
  mini: [small]
alerts: {notify: [{webhook: env:ONE}, {webhook: env:TWO}], anomalies: false}
data: {hosted: forbidden}
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def policy(folder: Path, team: str = "a", **ceilings: object) -> Policy:
    return load_policies([folder], Ceilings.model_validate(ceilings)).find(team)[0]


def problems(folder: Path, **ceilings: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_policies([folder], Ceilings.model_validate(ceilings))
    return [each.removeprefix(f"{folder}/") for each in caught.value.problems]


def test_mappings_merge_by_key_and_the_rest_is_taken_whole(tmp_path: Path) -> None:
    write(
        tmp_path,
        strict=STRICT,
        a="team: a\nextends: strict\ncache: {scope: team}\nmodels: {auto: {baseline: large}}\n"
        "budget: {limit_usd: 9}\nalerts: {notify: [{webhook: env:MINE}]}\n",
    )
    found = policy(tmp_path)
    assert (found.team, found.organisation) == ("a", "acme")
    assert (found.cache.ttl, found.cache.scope) == (3600, "team")
    assert found.rule("auto") == Policy.model_validate({"team": "a", "models": {"auto": {"reference": "large"}}}).rule(
        "auto"
    )
    assert found.rule("mini") is not None
    (budget,) = found.budget
    assert (budget.limit_usd, budget.alerts) == (9, (0.5, 0.8, 1.0))
    assert [each.webhook for each in found.alerts.notify] == ["env:MINE"]
    assert found.alerts.anomalies is False


def test_null_removes_what_the_base_sets(tmp_path: Path) -> None:
    write(
        tmp_path,
        strict=STRICT,
        a="team: a\nextends: strict\nbudget: null\ncache: {ttl: null}\nmodels: {mini: null}\nalerts: null\n",
    )
    found = policy(tmp_path)
    assert (found.budget, found.cache.ttl, found.cache.scope) == ((), 86400, "key")
    assert found.rule("mini") is None
    assert found.alerts.anomalies


def test_old_and_new_names_of_a_key_are_one_key(tmp_path: Path) -> None:
    write(tmp_path, old="base: old\nshare: 10%\ntrials: {share: 5%}\n")
    write(tmp_path, a="team: a\nextends: old\nrollout: 50%\nlearning: {judge: exact}\n")
    found = policy(tmp_path)
    assert (found.share, found.trials.share, found.trials.judge) == (0.5, 0.05, "exact")


def test_default_may_be_extended_and_exists_without_a_file(tmp_path: Path) -> None:
    write(tmp_path, a="team: a\nextends: default\ncost_centre: x\n")
    assert policy(tmp_path).cost_centre == "x"
    write(tmp_path, default="team: default\ncache: {ttl: 2h}\n")
    found = policy(tmp_path)
    assert (found.team, found.cost_centre, found.cache.ttl) == ("a", "x", 7200)


def test_several_teams_and_bases_stand_in_one_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        all="bases:\n  lean: {cache: {ttl: 1h}}\nteams:\n  a: {extends: lean}\n  b: {cache: {ttl: 2h}}\n  c: {}\n",
    )
    found = load_policies([tmp_path], Ceilings())
    assert {team: found.find(team)[0].cache.ttl for team in "abc"} == {"a": 3600, "b": 7200, "c": 86400}
    assert set(found.policies) == {"default", "a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("team: a\nextends: strct\n", "x.yaml:2: extends: there is no base called 'strct'; did you mean strict?"),
        ("team: a\nextends: a\n", "x.yaml:2: extends: a cannot extend itself; remove it"),
        ("team: a\nextends: [strict]\n", "x.yaml:2: extends: must be default or the name of a base"),
        ("base: two\nextends: strict\n", "x.yaml:2: extends: a base cannot extend another one; remove it"),
        ("base: strict\n", "'strict' is defined in"),
        ("base: default\n", "x.yaml:1: base: must be a name of letters"),
        ("base: b\nteam: a\n", "x.yaml:1: base: a file has either team or base; remove one"),
        ("teams:\n  a: {team: b}\n", "x.yaml:2: teams.a.team: remove it; a is the name already"),
        ("teams:\n  a: [x]\n", "x.yaml:2: teams.a: must be a mapping of keys to values; {} is an empty one"),
        ("teams: [a]\n", "x.yaml:1: teams: must be a mapping of names to policies"),
        ("teams: {a: {}}\ncache: {}\n", "x.yaml:2: cache: cannot stand beside teams or bases; move it into one"),
        ("teams:\n  a:\n    cache: {ttl: x}\n", "x.yaml:3: teams.a.cache.ttl: "),
        ("teams:\n  a/b: {}\n", "x.yaml:2: teams.a/b: the name must consist of letters"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_remedy(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, strict=STRICT, x=text)
    (problem,) = problems(tmp_path)
    assert complaint in problem


def test_a_cycle_and_a_second_level_are_refused(tmp_path: Path) -> None:
    write(tmp_path, a="base: one\nextends: two\n", b="base: two\nextends: one\n", c="team: c\nextends: one\n")
    assert problems(tmp_path) == [
        "a.yaml:2: extends: a base cannot extend another one; remove it",
        "b.yaml:2: extends: a base cannot extend another one; remove it",
    ]
    write(tmp_path, a="base: one\n", b="team: default\nextends: one\n", c="team: c\nextends: default\n")
    (problem,) = problems(tmp_path)
    assert problem.startswith("c.yaml:2: extends: default extends one itself, and only one level is allowed")


def test_a_mistake_in_a_base_is_told_once_with_the_bases_line(tmp_path: Path) -> None:
    teams = {name: f"team: {name}\nextends: strict\n" for name in "abc"}
    write(tmp_path, strict=STRICT.replace("ttl: 1h", "ttl: never"), **teams)
    (problem,) = problems(tmp_path)
    assert problem.startswith("strict.yaml:3: cache.ttl: ")


def test_a_base_above_the_ceilings_is_told_once_with_the_bases_line(tmp_path: Path) -> None:
    teams = {name: f"team: {name}\nextends: strict\n" for name in "abc"}
    write(tmp_path, strict=STRICT, **teams)
    (problem,) = problems(tmp_path, limit_usd=10)
    assert problem.startswith("strict.yaml:4: budget.limit_usd: 50 is above the operator's ceiling of 10")


@pytest.mark.parametrize(
    "setting", ["data: {store_prompts: true}", "data: {store_samples: 30d}", "context: {old_turns: summarize}"]
)
def test_nothing_of_prompts_is_stored_where_the_operator_forbids_it(tmp_path: Path, setting: str) -> None:
    (tmp_path / "a.yaml").write_text(f"team: a\n{setting}\n")
    [problem] = problems(tmp_path, store_prompts=False)
    assert "the operator forbids" in problem
    assert policy(tmp_path).team == "a"


def test_data_rules_may_be_loosened_only_within_the_ceilings(tmp_path: Path) -> None:
    write(tmp_path, strict=STRICT, a="team: a\nextends: strict\ndata: {hosted: allowed}\n")
    assert policy(tmp_path).data.hosted == "allowed"
    (problem,) = problems(tmp_path, hosted="forbidden")
    assert problem.startswith("a.yaml:3: data.hosted: the operator forbids hosted backends")


def reloaded(folder: Path, last: PolicySet) -> tuple[PolicySet, tuple[str, ...]]:
    return reload_policies([folder], Ceilings(), last)


@pytest.mark.parametrize("broken", ["cache: [\n", "base: strict\nnonsense: 1\n", "base: strict\nextends: other\n"])
def test_a_mistake_in_a_base_keeps_the_old_set_for_its_children_only(tmp_path: Path, broken: str) -> None:
    write(tmp_path, strict=STRICT, a="team: a\nextends: strict\n", b="team: b\n")
    last, _ = reloaded(tmp_path, PolicySet())
    write(tmp_path, strict=broken, a="team: a\nextends: strict\ncost_centre: new\n", b="team: b\ncost_centre: new\n")
    fresh, found = reloaded(tmp_path, last)
    assert len(found) == 1, found
    assert fresh.find("a")[0] == last.find("a")[0]
    assert fresh.find("b")[0].cost_centre == "new"
    again, _ = reloaded(tmp_path, fresh)
    assert again.find("a")[0] == last.find("a")[0]
    write(tmp_path, strict=STRICT)
    assert reloaded(tmp_path, again)[0].find("a")[0].cost_centre == "new"


def test_a_mistake_of_one_team_keeps_the_old_policy_of_that_team_in_its_file(tmp_path: Path) -> None:
    write(tmp_path, all="teams:\n  a: {cost_centre: old}\n  b: {cost_centre: old}\n")
    last, _ = reloaded(tmp_path, PolicySet())
    write(tmp_path, all="teams:\n  a: {cost_centre: new}\n  b: {cost_centre: 7}\n")
    fresh, found = reloaded(tmp_path, last)
    assert len(found) == 1
    assert [fresh.find(team)[0].cost_centre for team in "ab"] == ["new", "old"]
    write(tmp_path, all="teams: [\n")
    assert [reloaded(tmp_path, fresh)[0].find(team)[0].cost_centre for team in "ab"] == ["new", "old"]


def test_an_edit_of_a_base_that_shapes_no_answer_empties_no_cache(tmp_path: Path) -> None:
    write(tmp_path, strict=STRICT, a="team: a\nextends: strict\n")
    epoch = load_policies([tmp_path], Ceilings()).find("a")[1]
    edits = "cost_centre: x\nhedging: {enabled: true}\nlimits: {concurrent: 5}\n"
    edits += "max_usd_per_request: 1\noverrides: denied\n"
    write(tmp_path, strict=STRICT.replace("limit_usd: 50", "limit_usd: 60") + edits)
    assert load_policies([tmp_path], Ceilings()).find("a")[1] == epoch
    write(tmp_path, strict=STRICT.replace("ttl: 1h", "ttl: 2h"))
    assert load_policies([tmp_path], Ceilings()).find("a")[1] != epoch


def test_a_team_that_extends_has_the_fingerprint_of_the_same_rules_written_out(tmp_path: Path) -> None:
    write(tmp_path, strict=STRICT, a="team: a\nextends: strict\n")
    extended = load_policies([tmp_path], Ceilings()).find("a")
    (tmp_path / "strict.yaml").unlink()
    write(tmp_path, a=STRICT.replace("base: strict", "team: a"))
    assert load_policies([tmp_path], Ceilings()).find("a") == extended


def test_copies_of_the_policies_in_force_need_no_base(tmp_path: Path) -> None:
    folder, copies = tmp_path / "policies", tmp_path / "copies"
    folder.mkdir()
    write(folder, strict=STRICT, all="teams: {a: {extends: strict}, b: {extends: strict, budget: null}}\n")
    found = load_policies([folder], Ceilings())
    keep(copies, found.files)
    assert kept(copies, [folder / "all.yaml"]) == found.files
    write(folder, strict="nonsense")
    policies = Policies([folder], Ceilings(), copies)
    assert policies.current.find("a") == found.find("a")
    assert policies.current.find("b") == found.find("b")


def test_a_worker_that_starts_while_the_default_file_is_broken_keeps_what_teams_take_from_it(tmp_path: Path) -> None:
    folder, copies = tmp_path / "policies", tmp_path / "copies"
    folder.mkdir()
    rules = "team: default\nbudget: {limit_usd: 5}\ndata: {hosted: forbidden}\n"
    write(folder, default=rules, a="team: a\nextends: default\n")
    found = load_policies([folder], Ceilings())
    keep(copies, found.files)
    write(folder, default="nonsense")
    started = Policies([folder], Ceilings(), copies).current
    assert started.find("a") == found.find("a")
    again, _ = reload_policies([folder], Ceilings(), started)
    assert again.find("a") == found.find("a")


def test_each_effective_value_names_where_it_stands(tmp_path: Path) -> None:
    write(tmp_path, strict=STRICT, a="team: a\nextends: strict\ncache: {scope: team}\nshare: 10%\n")
    owner, values = effective([tmp_path], Ceilings.model_validate({"cache_scope": "key", "cache_ttl": "30m"}), "none")
    assert (owner, {each.origin for each in values}) == ("default", {"default", "ceilings of gateway.yaml"})
    owner, values = effective([tmp_path], Ceilings.model_validate({"requests_per_minute": 7}), "a")
    found = {each.key: (each.value, each.origin.removeprefix(f"{tmp_path}/")) for each in values}
    assert owner == "a"
    assert found["cache.scope"] == ("team", "a.yaml:3")
    assert found["cache.ttl"] == (3600.0, "strict.yaml:3")
    assert found["rollout"] == (0.1, "a.yaml:4")
    assert found["models.mini.candidates"] == (["small"], "strict.yaml:7")
    assert found["budget.0.limit_usd"] == ("50", "strict.yaml:4")
    assert found["budget.0.period"] == ("month", "default")
    assert found["limits.requests_per_minute"] == (7, "ceilings of gateway.yaml")
    assert found["mode"] == ("route", "default")


def test_the_command_shows_what_files_set_or_everything(tmp_path: Path) -> None:
    write(tmp_path, strict=STRICT, a="team: a\nextends: strict\nbudget: {limit_usd: 5, on_exhausted: warn}\n")
    words = ["policy", "show", "a", "--policies", str(tmp_path)]
    shown = CliRunner(env={"COLUMNS": "400"}).invoke(cli, words, catch_exceptions=False).output
    assert f"{tmp_path}/a.yaml:3" in shown
    assert "cache.join" not in shown
    every = orjson.loads(CliRunner().invoke(cli, [*words, "--effective", "--json"], catch_exceptions=False).stdout)
    exhausted = [each["value"] for each in every["values"] if each["key"] == "budget.0.on_exhausted"]
    assert exhausted == ["warn"]
    assert "cache.join" in {each["key"] for each in every["values"]}
