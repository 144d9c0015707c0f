"""Files of policies may be read in the middle of a scenario; one certificate serves all tests."""

from __future__ import annotations

import pytest
from blockbuster import BlockBuster

from tests.alerts.samples import receiver as receiver
from tests.fakes.certificate import Certificate, make


@pytest.fixture(autouse=True)
def tests_may_look(no_blocking_calls: BlockBuster) -> None:
    for function in no_blocking_calls.functions.values():
        function.can_block_in("tests/alerts/house.py", ("policy",))
        function.can_block_in("tests/alerts/test_watch.py", ("budget",))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("certificate"))
