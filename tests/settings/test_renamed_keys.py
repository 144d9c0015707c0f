"""Every renamed key of gateway.yaml and policies, by its old and its new name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from gateway.domain.policy import Policy
from gateway.settings.files import ConfigError, parse
from gateway.settings.gateway import GatewayConfig
from gateway.settings.renamed_keys import DROPPED_IN, GATEWAY, POLICY, RenamedKey, Renaming


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

EXAMPLES = [
    Example(GatewayConfig, "backends.[]", "window_tokens", BACKEND, "backends.0", "4096", "8192", "wide"),
    Example(
        GatewayConfig, "local_model", "window_tokens", "local_model:\n  {}\n", "local_model", "4096", "8192", "wide"
    ),
]
EACH = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.section}.{example.old}")


def row(example: Example) -> Renaming:
    table = GATEWAY if example.file is GatewayConfig else POLICY
    (found,) = (each for each in table if (each.section, each.old) == (example.section, example.old))
    return found


def read(example: Example, inside: str) -> tuple[BaseModel, list[str]]:
    """What a file with `inside` in its section stands for, and what is said of old names."""
    said: list[str] = []
    found = parse(example.text.format(inside), example.file, "a.yaml", on_old_name=said.append)
    return found, said


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
    by_new, nothing = read(example, f"{renamed.new}: {example.value}")
    assert by_old == by_new
    assert nothing == []
    line = example.text.format("HERE").split("HERE")[0].count("\n") + 1
    place = f"a.yaml:{line}: {'.'.join(filter(None, (example.path, renamed.old)))}"
    assert said == [f"{place}: is called {renamed.new} now; the old name is accepted until version {DROPPED_IN}"]


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
    assert problem == f"a.yaml:{line}: {place}: the old name of {renamed.new}, which is there too; keep that"
