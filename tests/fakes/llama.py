"""The real local model on the packaged weights, as the supervisor starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.settings.environment import variable
from gateway.supervisor.local_model import GGUF
from loadtests.ports import free_port
from loadtests.processes import answers
from tests.e2e.gateway_process import REPOSITORY
from tests.support.waiting import wait_until


@contextmanager
def llama(slots: int, window: int) -> Iterator[int]:
    """llama.cpp's own server → its port. Skips the test where engine or weights are missing."""
    if find_spec("xllamacpp") is None:
        pytest.skip("the extra `local` is not installed")
    weights = Path(variable("THRIFTGATE_TEST_GGUF") or REPOSITORY / ".models" / GGUF)
    if not weights.is_file():
        pytest.skip(f"no weights at {weights}")
    port = free_port()
    options = {"--gguf": weights, "--port": port, "--threads": 1, "--slots": slots, "--window": window}
    words = [str(word) for option in options.items() for word in option]
    command = [sys.executable, "-m", "gateway.backends.providers.llama", *words, "--gpu-layers", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield port
    finally:
        process.terminate()
        process.wait(timeout=15)


def _wait_for(url: str) -> None:
    wait_until(lambda: answers(url, 2), 60)
