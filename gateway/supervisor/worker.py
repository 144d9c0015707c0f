"""The program of a worker. It runs as `python -m gateway.supervisor.worker` or in a forked process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.app import worker_from
from gateway.runtime.garbage_collection import one_heap
from gateway.settings.environment import variable
from gateway.supervisor.heartbeat import FAILED, WORKER_VARIABLE, reporter
from gateway.supervisor.server import serve
from gateway.telemetry.log_lines import log_to


def run(settings: Mapping[str, Any]) -> None:
    """Run a worker: serve requests until SIGTERM. `settings["fd"]`: file descriptor of the listening socket.
    `settings["heartbeat"]`: file descriptor of the pipe to the supervisor."""
    one_heap()
    log_to()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    report = reporter(settings["heartbeat"])
    try:
        serve(worker_from(settings), report)
    except Exception as error:
        report(f"{FAILED}{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    run(orjson.loads(variable(WORKER_VARIABLE)))
