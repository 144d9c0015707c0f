from __future__ import annotations

import pytest

from gateway.domain.policy import ModelRule
from gateway.errors import UnknownModel
from gateway.routing.aliases import known, resolve
from tests.routing.conftest import HOSTED, LARGE, SMALL, backend, tenant

BACKENDS = [SMALL, LARGE, HOSTED, backend("large-2", "large", "1", model="large-model")]
POLICY = tenant(
    models={
        "auto": {"candidates": ["small", "large"], "reference": "hosted"},
        "gpt-4o": "auto",
        "pair": ["small", "absent"],
        "cheap": "small",
        "by-model": "large-model",
        "broken": "absent",
        "nobody": {"candidates": [], "reference": "absent"},
        "tiers": ["small", "hosted", "large-2"],
        "strong": "large",
    }
).policy


def _names(model: str) -> list[str]:
    return [each.name for each in resolve(model, POLICY, BACKENDS).backends]


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("auto", ["small", "large", "hosted"]),
        ("gpt-4o", ["small", "large", "hosted"]),
        ("pair", ["small"]),
        ("cheap", ["small"]),
        ("large", ["large"]),
        ("large-model", ["large", "large-2"]),
        ("by-model", ["large", "large-2"]),
        ("nobody", ["small", "large", "hosted", "large-2"]),
    ],
)
def test_a_name_stands_for_backends(model: str, names: list[str]) -> None:
    assert _names(model) == names


def test_only_rules_leave_something_to_decide() -> None:
    assert isinstance(resolve("gpt-4o", POLICY, BACKENDS).rule, ModelRule)
    assert resolve("cheap", POLICY, BACKENDS).rule is None
    assert resolve("large", POLICY, BACKENDS).rule is None


def test_a_tier_stands_for_all_its_backends_and_may_be_empty() -> None:
    ours = [backend("phi", "small", "1"), backend("llama", "large", "2"), backend("qwen", "large", "2")]
    assert [each.name for each in resolve("tiers", POLICY, ours).backends] == ["phi"]
    assert [each.name for each in resolve("strong", POLICY, ours).backends] == ["llama", "qwen"]
    assert resolve("tiers", POLICY, ours).missing == ("large-2",)


def test_names_in_a_rule_that_no_backend_has_are_told() -> None:
    assert resolve("pair", POLICY, BACKENDS).missing == ("absent",)
    assert resolve("nobody", POLICY, BACKENDS).missing == ("absent",)


def test_auto_exists_without_a_policy_for_it() -> None:
    assert len(resolve("auto", tenant().policy, BACKENDS).backends) == len(BACKENDS)


def test_an_unknown_name_is_answered_with_what_exists() -> None:
    with pytest.raises(UnknownModel, match=r"'gpt-9' does not exist.*auto, gpt-4o, pair.*small, large") as caught:
        resolve("gpt-9", POLICY, BACKENDS)
    assert caught.value.param == "model"


def test_an_alias_that_leads_nowhere_says_where_it_leads() -> None:
    with pytest.raises(UnknownModel, match="alias leads to 'absent'"):
        resolve("broken", POLICY, BACKENDS)


def test_known_names_are_listed_once() -> None:
    names = known(POLICY, BACKENDS)
    assert len(names) == len(set(names))
    assert {"auto", "gpt-4o", "small", "large-model"} <= set(names)


def test_a_backend_that_must_be_named_is_in_no_tier_and_not_in_auto() -> None:
    toy = backend("toy", "small", "0.01", only_named=True)
    present = [toy, *BACKENDS]
    auto = tenant().policy

    def found(model: str, **models: object) -> list[str]:
        policy = tenant(models=models).policy if models else auto
        return [each.name for each in resolve(model, policy, present).backends]

    assert "toy" not in found("auto")
    assert found("auto", auto={"candidates": ["small"]}) == ["small"]
    assert found("cheap", cheap="small") == ["small"]
    assert found("toy") == ["toy"]
    assert found("toy-model") == ["toy"]
    assert found("tour", tour={"candidates": ["toy", "large"]}) == ["toy", "large"]
