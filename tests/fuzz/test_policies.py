"""Policy files, changed: the loader takes them or says what is wrong, and other teams' policies stay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.policy.load import PolicySet, load_policies, reload_policies
from gateway.settings.gateway import Ceilings
from tests.fuzz.mutate import written
from tests.fuzz.policies import policy
from tests.fuzz.seeds import POLICY

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies")
    (folder / "good.yaml").write_text("team: good\n")
    return folder


@settings(max_examples=400, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_any_policy_file_is_taken_or_refused_in_words(folder: Path, random: Random) -> None:
    (folder / "mean.yaml").write_bytes(policy(random))
    fresh, problems = reload_policies([folder], Ceilings(), PolicySet())
    assert "good" in fresh.policies
    assert "mean" in fresh.policies or problems or len(fresh.policies) > 1  # a file may name another team
    assert all(len(problem) < 10_000 for problem in problems)


def test_an_unchanged_policy_is_taken(folder: Path) -> None:
    (folder / "mean.yaml").write_bytes(written(POLICY))
    assert "mean" in load_policies([folder], Ceilings()).policies
