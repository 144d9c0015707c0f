"""The vendors' tools as packages bring them, wherever the tests were started from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def tools_on_path() -> Iterator[None]:
    """Those beside this interpreter come first; nobody need have activated its environment."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield
