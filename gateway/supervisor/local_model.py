"""Finds, starts and checks the process that serves the packaged local model."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from gateway.settings.gateway import Settings
from gateway.supervisor.figures import Figure
from gateway.supervisor.probe import status_of
from gateway.supervisor.process import ChildProcess, program, python

log = logging.getLogger(__name__)

GGUF = "smollm2-135m-instruct-q4_1.gguf"
HOST = "127.0.0.1"
PROBE_S = 5.0
MAX_FAILURES = 4
"""Number of consecutive probes without an answer after which the process counts as frozen."""


def find_weights(settings: Settings) -> Path | None:
    """The file with the weights to serve. None if the local model is switched off, has no entry in `backends`, or is
    not installed."""
    local = settings.config.local_model
    weights = Path(local.gguf) if local.gguf else settings.paths.models / GGUF
    backends = settings.config.backends
    wanted = local.enabled and (backends is None or any(each.managed for each in backends))
    return weights if wanted and weights.is_file() and find_spec("xllamacpp") else None


class LocalModel:
    """Runs llama.cpp's server as a child process. After a restart, the server has the same port."""

    def __init__(self, settings: Settings, weights: Path, on_change: Callable[[], None] = lambda: None) -> None:
        local = settings.config.local_model
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port: int = probe.getsockname()[1]
        options = {
            "--gguf": weights,
            "--host": HOST,
            "--port": self.port,
            "--threads": local.threads,
            "--slots": local.slots,
            "--window": local.window_tokens,
            "--gpu-layers": local.gpu_layers,
        }
        words = [str(word) for option in options.items() for word in option]
        command = python("-m", "gateway.backends.providers.llama", *words)
        self.child = ChildProcess("local model", program(command, silent=True), on_change=on_change)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    def figures(self) -> Iterator[Figure]:
        yield "local_model_up", (), int(self.child.pid is not None)

    def processes(self) -> Iterator[tuple[str, int | None]]:
        yield "local model", self.child.pid

    async def watch(self) -> None:
        """Check the process until cancelled. A process that no longer answers is killed, and `child.keep` restarts
        it."""
        failures = 0
        while True:
            await asyncio.sleep(PROBE_S)
            status = await status_of(HOST, self.port, "/health", PROBE_S)
            failures = 0 if status or self.child.pid is None else failures + 1
            if failures >= MAX_FAILURES:
                log.error("the local model is frozen; it is restarted")
                self.child.kill("frozen")
                failures = 0
