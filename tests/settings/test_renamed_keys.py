"""Every renamed key of gateway.yaml and policies, by its old and its new name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel

from gateway.domain.policy import Policy
from gateway.policy.load import load_policies
from gateway.settings.files import MOST_PROBLEMS, ConfigError, parse
from gateway.settings.gateway import Ceilings, GatewayConfig
from gateway.settings.renamed_keys import (
    DROPPED_IN,
    GATEWAY,
    POLICY,
    MovedKey,
    OldName,
    RenamedKey,
    RenamedValue,
    Renaming,
    with_both_names,
)


@dataclass(frozen=True)
class Example:
    """A file with `{}` where the key stands under `path`; a value, another one, and one that is refused."""

    file: type[BaseModel]
    section: str
    old: str
    text: str
    path: str
    value: str
    other: str
    wrong: str


BACKEND = "backends:\n  - name: small\n    kind: local\n    model: m\n    {}\n"

BUDGET = "team: a\nbudget:\n  {}\n  limit_usd: 5\n"
BUDGETS = "team: a\nbudget:\n  - limit_usd: 9\n  - limit_usd: 5\n    {}\n"
SHARED = "organisations:\n  acme:\n    budget:\n      limit_usd: 5\n      {}\n"

EXAMPLES = [
    Example(GatewayConfig, "", "trials", "{}\n", "", "{cap_usd: 3}", "{cap_usd: 4}", "5"),
    Example(GatewayConfig, "trials", "window", "trials:\n  {}\n", "trials", "week", "hour", "year"),
    Example(GatewayConfig, "trials", "window", "learning:\n  {}\n", "learning", "week", "hour", "year"),
    Example(GatewayConfig, "backends.[]", "window_tokens", BACKEND, "backends.0", "4096", "8192", "wide"),
    Example(GatewayConfig, "backends.[]", "concurrent", BACKEND, "backends.0", "4", "8", "0"),
    Example(GatewayConfig, "backends.[]", "queue", BACKEND, "backends.0", "4", "8", "-1"),
    Example(
        GatewayConfig, "local_model", "window_tokens", "local_model:\n  {}\n", "local_model", "4096", "8192", "wide"
    ),
    Example(
        GatewayConfig, "organisations.*.budget.[]", "window", SHARED, "organisations.acme.budget", "day", "week", "x"
    ),
    Example(GatewayConfig, "requests", "stall", "requests:\n  {}\n", "requests", "30s", "90s", "never"),
    Example(GatewayConfig, "routing", "artefact", "routing:\n  {}\n", "routing", "a.json", "b.json", "5"),
    Example(Policy, "", "share", "team: a\n{}\n", "", "25%", "50%", "200%"),
    Example(Policy, "", "trials", "team: a\n{}\n", "", "{share: 5%}", "{share: 6%}", "5"),
    Example(Policy, "budget.[]", "window", BUDGET, "budget", "day", "week", "year"),
    Example(Policy, "budget.[]", "window", BUDGETS, "budget.1", "day", "week", "year"),
    Example(Policy, "models.*", "reference", "team: a\nmodels:\n  auto:\n    {}\n", "models.auto", "big", "huge", "[]"),
]
EACH = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.path}.{example.old}")


def row(example: Example) -> RenamedKey:
    table = GATEWAY if example.file is GatewayConfig else POLICY
    (found,) = (each for each in table if (each.section, each.old) == (example.section, example.old))
    assert isinstance(found, RenamedKey)
    return found


def read(example: Example, inside: str) -> tuple[BaseModel, list[str]]:
    """What a file with `inside` in its section stands for, and what is said of old names."""
    said: list[OldName] = []
    found = parse(example.text.format(inside), example.file, "a.yaml", on_old_name=said.append)
    return found, [each.line for each in said]


def test_every_renamed_key_has_an_example() -> None:
    told = {(example.file, example.section, example.old) for example in EXAMPLES}
    assert told == {
        (model, each.section, each.old)
        for model, table in ((GatewayConfig, GATEWAY), (Policy, POLICY))
        for each in table
        if isinstance(each, RenamedKey)
    }


@EACH
def test_both_names_mean_the_same(example: Example) -> None:
    renamed = row(example)
    by_old, said = read(example, f"{renamed.old}: {example.value}")
    by_new, said_of_others = read(example, f"{renamed.new}: {example.value}")
    assert by_old == by_new
    line = example.text.format("HERE").split("HERE")[0].count("\n") + 1
    place = f"a.yaml:{line}: {'.'.join(filter(None, (example.path, renamed.old)))}"
    told = f"{place}: is now called {renamed.new}; the old name is accepted until version {DROPPED_IN}"
    assert (said_of_others, said) == (said[:-1], [*said[:-1], told])


@EACH
def test_a_value_under_either_name_is_in_force(example: Example) -> None:
    for name in (row(example).old, row(example).new):
        assert read(example, f"{name}: {example.value}")[0] != read(example, f"{name}: {example.other}")[0]


@EACH
def test_a_mistake_names_the_key_as_the_file_writes_it(example: Example) -> None:
    renamed = row(example)
    line = example.text.format("HERE").split("HERE")[0].count("\n") + 1
    for name in (renamed.old, renamed.new):
        with pytest.raises(ConfigError) as caught:
            read(example, f"{name}: {example.wrong}")
        (problem,) = caught.value.problems
        assert problem.startswith(f"a.yaml:{line}: {'.'.join(filter(None, (example.path, name)))}: ")


@EACH
def test_both_names_together_are_a_mistake(example: Example) -> None:
    renamed = row(example)
    indent = example.text.partition("{}")[0].rpartition("\n")[2]
    line = example.text.format("HERE").split("HERE")[0].count("\n") + 2
    with pytest.raises(ConfigError) as caught:
        read(example, f"{renamed.new}: {example.value}\n{indent}{renamed.old}: {example.value}")
    (problem,) = caught.value.problems
    place = ".".join(filter(None, (example.path, renamed.old)))
    assert (
        problem
        == f"a.yaml:{line}: {place}: is the old name of {renamed.new}, which the file has too; keep only the new one"
    )


BACKEND_OF = "backends:\n  - {{name: b, kind: openai, model: m, base_url: '{}', {}}}\n"
AT_HOME, BY_NAME, AT_OPENAI = "http://10.0.0.5/v1", "http://vllm:8000/v1", "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("base_url", "said", "advice"),
    [
        (AT_HOME, "tier: small", "write strength: small instead"),
        (BY_NAME, "tier: large, location: local", "write strength: large instead"),
        (BY_NAME, "tier: hosted", "write location: hosted instead"),
        (AT_OPENAI, "tier: hosted", "write location: hosted instead"),
        (BY_NAME, "tier: hosted, location: hosted", "remove it"),
        (AT_HOME, "tier: hosted, location: local", "remove it"),
        (
            BY_NAME,
            "tier: large",
            "write strength: large instead, and location: local if the machine is your own; without it, the "
            "backend counts as hosted in policies",
        ),
        (
            AT_OPENAI,
            "tier: large",
            "write strength: large instead; policies then select the backend by hosted, since prompts to it leave",
        ),
    ],
)
def test_the_tier_of_a_backend_is_said_by_strength_and_location(base_url: str, said: str, advice: str) -> None:
    told: list[OldName] = []
    (found,) = parse(BACKEND_OF.format(base_url, said), GatewayConfig, "a.yaml", on_old_name=told.append).backends or ()
    assert found.tier == said.partition(",")[0].removeprefix("tier: ")
    assert [each.line for each in told] == [
        f"a.yaml:2: backends.0.tier: {advice}; the old name is accepted until version {DROPPED_IN}"
    ]


def test_tier_beside_strength_is_a_mistake() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(BACKEND_OF.format(AT_HOME, "tier: small, strength: small"), GatewayConfig, "a.yaml")
    assert caught.value.problems == (
        "a.yaml:2: backends.0.tier: is the old name of strength and location; keep only the new ones",
    )


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("strength: hosted", "backends.0.strength: must be 'small' or 'large', not 'hosted'"),
        ("tier: huge", "backends.0.tier: must be 'small', 'large' or 'hosted', not 'huge'"),
        ("strength: small, location: mars", "backends.0.location: must be 'local' or 'hosted', not 'mars'"),
    ],
)
def test_a_wrong_strength_tier_or_location_is_told(said: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(BACKEND_OF.format(AT_HOME, said), GatewayConfig, "a.yaml")
    assert caught.value.problems == (f"a.yaml:2: {problem}",)


MOVED = pytest.mark.parametrize(("old", "new"), [("drain", "grace_period"), ("drain_delay", "drain_delay")])


def test_every_moved_key_is_tested() -> None:
    moved = {(each.section, each.old, each.new_section, each.new) for each in GATEWAY if isinstance(each, MovedKey)}
    assert moved == {("requests", "drain", "shutdown", "grace_period"),
                     ("requests", "drain_delay", "shutdown", "drain_delay")}  # fmt: skip


@MOVED
def test_a_moved_key_means_the_same_at_both_places(old: str, new: str) -> None:
    said: list[OldName] = []
    by_old = parse(f"requests:\n  {old}: 7s\n", GatewayConfig, "a.yaml", on_old_name=said.append)
    assert by_old == parse(f"shutdown:\n  {new}: 7s\n", GatewayConfig, "a.yaml") != GatewayConfig()
    told = f"is now called shutdown.{new}; the old name is accepted until version {DROPPED_IN}"
    assert [each.line for each in said] == [f"a.yaml:2: requests.{old}: {told}"]


@MOVED
def test_a_mistake_in_a_moved_key_names_its_place_in_the_file(old: str, new: str) -> None:
    for text, place in (
        (f"requests:\n  {old}: x\n", f"requests.{old}"),
        (f"shutdown:\n  {new}: x\n", f"shutdown.{new}"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse(text, GatewayConfig, "a.yaml")
        (problem,) = caught.value.problems
        assert problem.startswith(f"a.yaml:2: {place}: must be a duration")


@MOVED
def test_a_moved_key_at_both_places_is_a_mistake(old: str, new: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"shutdown: {{{new}: 7s}}\nrequests: {{{old}: 7s}}\n", GatewayConfig, "a.yaml")
    assert caught.value.problems == (
        f"a.yaml:2: requests.{old}: is the old name of shutdown.{new}, which the file has too; keep only the new one",
    )


BUDGET_OF = pytest.mark.parametrize(
    ("file", "place", "text"),
    [
        (Policy, "budget", "team: a\nbudget: {{limit_usd: 5, {}}}\n"),
        (Policy, "budget.1", "team: a\nbudget: [{{limit_usd: 9}}, {{limit_usd: 5, {}}}]\n"),
        (GatewayConfig, "organisations.acme.budget", "\norganisations: {{acme: {{budget: {{limit_usd: 5, {}}}}}}}\n"),
    ],
)


@BUDGET_OF
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "on_exhausted: downgrade",
            "on_exhausted: free_only",
            "on_exhausted: downgrade is now called free_only; the old",
        ),
        ("hard: false", "on_exhausted: warn", "hard: is now called on_exhausted: warn; the old"),
        ("hard: no, on_exhausted: refuse", "on_exhausted: warn", "hard: is now called on_exhausted: warn; the old"),
        (
            "hard: true",
            "on_exhausted: refuse",
            "hard: remove it: it is the default unless on_exhausted is warn; the old",
        ),
        (
            "hard: yes",
            "on_exhausted: refuse",
            "hard: remove it: it is the default unless on_exhausted is warn; the old",
        ),
    ],
)
def test_what_an_exhausted_budget_does_has_new_words(
    file: type[BaseModel], place: str, text: str, old: str, new: str, told: str
) -> None:
    said: list[OldName] = []
    by_old = parse(text.format(old), file, "a.yaml", on_old_name=said.append)
    by_new = parse(text.format(new), file, "a.yaml", on_old_name=said.append)
    assert by_old == by_new
    assert [each.line for each in said] == [f"a.yaml:2: {place}.{told} name is accepted until version {DROPPED_IN}"]


@BUDGET_OF
def test_both_words_for_a_budget_that_only_warns_are_a_mistake(file: type[BaseModel], place: str, text: str) -> None:
    for hard in ("true", "false"):
        with pytest.raises(ConfigError) as caught:
            parse(text.format(f"on_exhausted: warn, hard: {hard}"), file, "a.yaml")
        assert caught.value.problems == (
            f"a.yaml:2: {place}.hard: is the old name of on_exhausted: warn, which the file has too; "
            "keep only the new one",
        )


@BUDGET_OF
def test_a_word_that_does_not_exist_is_told_with_the_new_ones(file: type[BaseModel], place: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text.format("on_exhausted: panic"), file, "a.yaml")
    assert caught.value.problems == (
        f"a.yaml:2: {place}.on_exhausted: must be 'refuse', 'free_only', 'finish', 'truncate' or 'warn', not 'panic'",
    )


def test_a_budget_that_only_warns_is_not_enforced() -> None:
    (budget,) = parse("team: a\nbudget: {limit_usd: 5, on_exhausted: warn}\n", Policy, "a.yaml").budget
    assert not budget.hard


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("shutdown: {grace: 7s}\n", "a.yaml:1: shutdown.grace: unknown key"),
        ("requests: {drain: 7s}\nshutdown: 5\n", "a.yaml:2: shutdown: must be a section"),
        ("requests: 5\n", "a.yaml:1: requests: must be a section"),
        ("backends: 5\n", "a.yaml:1: backends: must be a list"),
        ("backends: [5]\n", "a.yaml:1: backends.0: must be a section"),
        ("trials:\n", "a.yaml:1: trials: must be a section"),
        ("learning:\n", "a.yaml:1: learning: must be a section"),
    ],
)
def test_a_section_of_another_shape_is_a_mistake_as_ever(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, GatewayConfig, "a.yaml")
    (told,) = caught.value.problems
    assert told.startswith(problem)


def test_a_policy_by_new_names_has_the_fingerprint_of_its_old_self(tmp_path: Path) -> None:
    old = """\
team: a
share: 25%
models: {auto: {candidates: [small, large], reference: large}}
budget: [{limit_usd: 20, window: day}, {limit_usd: 300, window: total}]
trials: {share: 5%}
"""
    new = """\
team: a
rollout: 25%
models: {auto: {candidates: [small, large], baseline: large}}
budget: [{limit_usd: 20, period: day}, {limit_usd: 300, period: total}]
learning: {share: 5%}
"""
    found = []
    for text in (old, new):
        (tmp_path / "a.yaml").write_text(text)
        found.append(load_policies([tmp_path], Ceilings()).find("a"))
    assert found[0] == found[1]


def test_what_an_alias_or_a_merge_repeats_is_renamed_everywhere() -> None:
    text = """\
backends:
  - &first {name: a, kind: local, model: m, max_parallel_requests: 4, context_window: 100}
  - {<<: *first, name: b}
  - {<<: *first, name: c, max_parallel_requests: 8}
organisations:
  acme: {budget: &shared {limit_usd: 5, period: day}}
  other: {budget: [*shared, {limit_usd: 9, window: total}]}
"""
    config = parse(text, GatewayConfig, "gateway.yaml")
    assert [each.concurrent for each in config.backends or ()] == [4, 4, 8]
    assert [each.window for each in config.organisations["other"].budget] == ["day", "total"]


def test_what_is_said_of_old_names_is_bounded() -> None:
    text = "team: a\nmodels:\n" + "".join(f"  m{number}: {{reference: big}}\n" for number in range(1000))
    said: list[OldName] = []
    parse(text, Policy, "a.yaml", on_old_name=said.append)
    assert len(said) == MOST_PROBLEMS + 1
    assert said[0].key == "models.m0.reference"
    assert said[-1] == OldName("", f"a.yaml: and {1000 - MOST_PROBLEMS} more")


@pytest.mark.parametrize(("model", "table"), [(GatewayConfig, GATEWAY), (Policy, POLICY)])
def test_the_schema_knows_both_names_and_the_old_as_deprecated(
    model: type[BaseModel], table: Sequence[Renaming]
) -> None:
    schema = with_both_names(model.model_json_schema(), table)
    sections = (schema, *schema["$defs"].values())
    told = {name for each in sections for name, known in each.get("properties", {}).items() if known.get("deprecated")}
    assert told == {each.old for each in table if not isinstance(each, RenamedValue)}
    known = {name for each in sections for name in each.get("properties", {})}
    assert {each.new for each in table if isinstance(each, RenamedKey | MovedKey)} <= known
    words = schema["$defs"]["Budget"]["properties"]["on_exhausted"]["anyOf"]
    assert words[0] == {"enum": ["refuse", "free_only", "finish", "truncate", "warn"]}
    assert (words[1]["const"], words[1]["deprecated"]) == ("downgrade", True)
