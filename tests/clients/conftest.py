"""One stage for all clients of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.stage import Stage, staged


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("clients") / "home") as stage:
        yield stage


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home and work folder with nothing in it."""
    return tmp_path
