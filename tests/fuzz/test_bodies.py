"""Valid bodies, queries and ids, changed: none makes the gateway fail, and each answer is in the ledger once."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.requests import ask_inference, ask_other
from tests.fuzz.stage import Stage
from tests.fuzz.wire import Client

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


@settings(max_examples=500, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_no_body_of_a_dialect_makes_the_gateway_fail(stage: Stage, client: Client, random: Random) -> None:
    stage.faults.clear()
    ask_inference(stage, client, random)
    assert not stage.faults, stage.faults[0]


@settings(max_examples=400, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_no_query_id_or_body_of_another_endpoint_makes_it_fail(stage: Stage, client: Client, random: Random) -> None:
    stage.faults.clear()
    ask_other(stage, client, random)
    assert not stage.faults, stage.faults[0]


def test_afterwards_it_serves_and_its_books_and_log_are_in_order(stage: Stage) -> None:
    stage.assert_serves()
    stage.assert_clean()
    assert stage.paid
