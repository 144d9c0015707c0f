"""Each run has another seed, which is printed where a test fails: `--hypothesis-seed` repeats it."""

from __future__ import annotations

from random import SystemRandom

import pytest
from hypothesis import is_hypothesis_test, seed

SEED = SystemRandom().randrange(2**32)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    if is_hypothesis_test(request.function) and request.config.getoption("--hypothesis-seed") is None:
        seed(SEED)(request.function)
        print(f"to repeat this: pytest {request.node.nodeid} --hypothesis-seed={SEED}")
