from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from gateway.supervisor.runtime_dir import lift_file_limit


@pytest.fixture
def modest() -> Iterator[None]:
    """A shell's usual soft limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("modest")
def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert lift_file_limit() == hard
