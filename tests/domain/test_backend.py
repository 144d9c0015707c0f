"""Which selector a backend belongs to, and whether prompts to it leave, for every way to say where and how strong."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.backend import RANK, Backend
from gateway.domain.policy import Policy
from gateway.routing.aliases import resolve

PRIVATE = "http://10.0.0.5:8000/v1"
PUBLIC = "http://203.0.113.5:8000/v1"
NAME = "https://llm.example.com/v1"
PROVIDER = "https://api.openai.com/v1"


def backend(base_url: str, location: str | None, kind: str = "openai", **said: Any) -> Backend:
    given = {"name": "b", "kind": kind, "model": "m", "base_url": base_url, "location": location, **said}
    return Backend.model_validate({key: value for key, value in given.items() if value is not None})


PLACES = [
    # address, location → is a small one called small?, do prompts leave?, is it one's own?
    (PRIVATE, None, "small", False, True),
    (PRIVATE, "local", "small", False, True),
    (PRIVATE, "hosted", "hosted", True, False),
    (PUBLIC, None, "hosted", True, False),
    (PUBLIC, "local", "small", False, True),
    (PUBLIC, "hosted", "hosted", True, False),
    (NAME, None, "hosted", True, False),
    (NAME, "local", "small", False, True),
    (NAME, "hosted", "hosted", True, False),
    (PROVIDER, None, "hosted", True, False),
    (PROVIDER, "local", "hosted", True, False),
    (PROVIDER, "hosted", "hosted", True, False),
]


@pytest.mark.parametrize("strength", ["small", "large"])
@pytest.mark.parametrize(("base_url", "location", "small", "leaves", "own"), PLACES)
def test_a_strength_selects_local_backends_alone(
    base_url: str, location: str | None, small: str, leaves: bool, own: bool, strength: str
) -> None:
    found = backend(base_url, location, strength=strength)
    tier = strength if small == "small" else "hosted"
    assert (found.tier, found.hosted, found.own) == (tier, leaves, own)


@pytest.mark.parametrize(("base_url", "location", "small", "leaves", "own"), PLACES)
def test_without_a_strength_it_belongs_to_hosted_as_ever(
    base_url: str, location: str | None, small: str, leaves: bool, own: bool
) -> None:
    found = backend(base_url, location)
    assert (found.tier, found.hosted) == ("hosted", leaves)
    assert found.own == (location == "local" and base_url != PROVIDER)


@pytest.mark.parametrize("tier", ["small", "large", "hosted"])
@pytest.mark.parametrize(("base_url", "location", "small", "leaves", "own"), PLACES)
def test_the_old_word_means_what_it_meant(
    base_url: str, location: str | None, small: str, leaves: bool, own: bool, tier: str
) -> None:
    found = backend(base_url, location, tier=tier)
    by_its_tier = tier == "hosted" and location is None
    assert (found.tier, found.hosted) == (tier, leaves or by_its_tier)
    assert found.own == (own and not by_its_tier)


@pytest.mark.parametrize(
    ("kind", "base_url", "location", "tier"),
    [
        ("litellm", "", None, "hosted"),
        ("litellm", "", "local", "hosted"),
        ("litellm", PRIVATE, None, "large"),
        ("local", "", None, "large"),
        ("local", "unix:/run/llama.sock", None, "large"),
        ("anthropic", "https://api.anthropic.com/v1", None, "hosted"),
        ("simulated", "", None, "large"),
        ("simulated", "", "hosted", "hosted"),
    ],
)
def test_each_kind_of_backend_has_its_place(kind: str, base_url: str, location: str | None, tier: str) -> None:
    assert backend(base_url, location, kind, strength="large").tier == tier


@pytest.mark.parametrize(
    ("base_url", "old", "new"),
    [
        (PRIVATE, {"tier": "small"}, {"strength": "small"}),
        (PRIVATE, {"tier": "large", "location": "local"}, {"strength": "large", "location": "local"}),
        (PRIVATE, {"tier": "hosted"}, {"location": "hosted"}),
        (PRIVATE, {"tier": "hosted", "location": "local"}, {"location": "local"}),
        (NAME, {"tier": "small", "location": "local"}, {"strength": "small", "location": "local"}),
        (NAME, {"tier": "hosted"}, {"strength": "large"}),
        (NAME, {"tier": "hosted", "location": "hosted"}, {"strength": "small", "location": "hosted"}),
        (PROVIDER, {"tier": "hosted"}, {"strength": "large"}),
        (PROVIDER, {"tier": "hosted"}, {"strength": "small", "location": "hosted"}),
        (PROVIDER, {"tier": "hosted"}, {}),
    ],
)
def test_what_tier_said_is_said_by_strength_and_location(
    base_url: str, old: dict[str, str], new: dict[str, str]
) -> None:
    before, after = (backend(base_url, said.pop("location", None), **said) for said in (dict(old), dict(new)))
    assert (after.tier, after.hosted, after.own) == (before.tier, before.hosted, before.own)


def test_why_a_strong_backend_is_hosted_is_told_by_its_address() -> None:
    assert backend(NAME, None, strength="large").why_hosted == "its address is public, or a name that may lead anywhere"


def test_selectors_keep_their_sets_and_ranks() -> None:
    """`[small, large]` never means a backend to which prompts leave."""
    backends = [
        backend(base_url, location, name=f"b{number}", strength=strength)
        for number, (base_url, location, strength) in enumerate(
            (base_url, location, strength)
            for base_url, location, *_ in PLACES
            for strength in ("small", "large")
        )
    ]  # fmt: skip
    policy = Policy.model_validate({"team": "t", "models": {"auto": ["small", "large"], "far": ["hosted"]}})
    local = resolve("auto", policy, backends).backends
    far = resolve("far", policy, backends).backends
    assert {each.tier for each in local} == {"small", "large"}
    assert not any(each.hosted for each in local)
    assert all(each.hosted for each in far)
    assert len(local) + len(far) == len(backends)
    assert RANK == {"small": 0, "large": 1, "hosted": 2}


@pytest.mark.parametrize("said", [{}, {"strength": "small"}, {"tier": "small"}])
def test_prompts_to_another_gateway_leave_unless_its_operator_says_otherwise(said: dict[str, str]) -> None:
    """A private address of a gateway does not show which providers it calls, nor that they are free."""
    found = backend(PRIVATE, None, "thriftgate", **said)
    assert (found.hosted, found.own) == (True, False)
    found = backend(PRIVATE, "local", "thriftgate", **said)
    assert (found.hosted, found.own) == (False, True)


def test_a_changed_copy_has_the_facts_of_its_own_kind() -> None:
    one = backend(PRIVATE, None)
    facts, dialects = one.facts, one.spoken
    other = one.model_copy(update={"kind": "anthropic"})
    assert (other.facts, other.spoken) == (backend(PRIVATE, None, "anthropic").facts, ("anthropic_messages",))
    assert (one.facts, one.spoken) == (facts, dialects)
    assert one == backend(PRIVATE, None)


@pytest.mark.parametrize("user", ["name:secret@", "secret@", ":@"])
def test_an_address_holds_no_secret(user: str) -> None:
    with pytest.raises(ValueError, match="must not contain a user name or a password; give the secret as api_key"):
        backend(f"https://{user}example.com/v1", None)
