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
def test_no_framing_makes_the_gateway_fail(house: Stage, random: Random) -> None:
    data = message(random, house.key)
    statuses = raw(house.gateway.port, data)
    assert not [status for status in statuses if status >= 500 and status != 501], data[:3000]


def test_afterwards_it_serves_and_its_books_and_log_are_in_order(house: Stage) -> None:
    house.assert_serves()
    house.assert_clean()
