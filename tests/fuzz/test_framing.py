"""Bytes on a raw socket that are almost HTTP: none makes the gateway fail, and the next request is answered."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.framing import message
from tests.fuzz.stage import Stage
from tests.fuzz.wire import raw

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


@settings(max_examples=120, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_no_framing_makes_the_gateway_fail(stage: Stage, random: Random) -> None:
    data = message(random, stage.key)
    statuses = raw(stage.gateway.port, data)
    assert not [status for status in statuses if status >= 500 and status != 501], data[:3000]


def test_afterwards_it_serves_and_its_books_and_log_are_in_order(stage: Stage) -> None:
    stage.assert_serves()
    stage.assert_clean()
