"""Each run has another seed, which is printed where a test fails: `--hypothesis-seed` repeats it."""

from __future__ import annotations

from collections.abc import Iterator
from random import SystemRandom

import pytest
from hypothesis import is_hypothesis_test, seed

from tests.fuzz.stage import Stage, open_stage
from tests.fuzz.wire import Client

SEED = SystemRandom().randrange(2**32)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    if is_hypothesis_test(request.function) and request.config.getoption("--hypothesis-seed") is None:
        seed(SEED)(request.function)
        print(f"to repeat this: pytest {request.node.nodeid} --hypothesis-seed={SEED}")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("fuzz") / "home") as stage:
        yield stage


@pytest.fixture(scope="module")
def client(stage: Stage) -> Iterator[Client]:
    client = stage.client()
    yield client
    client.close()
