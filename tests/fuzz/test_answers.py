"""Answers and streams of a provider, changed: the client gets an answer or an error of its dialect, never a 500."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.requests import ask_valid
from tests.fuzz.stage import Stage
from tests.fuzz.wire import Client

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


@settings(max_examples=400, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_no_answer_of_a_provider_makes_the_gateway_fail(stage: Stage, client: Client, seed: int) -> None:
    stage.faults.clear()
    stage.provider.random, stage.provider.share = Random(seed), 0.7
    ask_valid(stage, client, Random(seed))
    assert not stage.faults, stage.faults[0]


def test_afterwards_it_serves_and_its_books_and_log_are_in_order(stage: Stage) -> None:
    stage.assert_serves()
    stage.assert_clean()
    assert stage.paid
