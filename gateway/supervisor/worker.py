"""A worker's program: `python -m gateway.supervisor.worker`, or a fork."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.app import told
from gateway.runtime.garbage_collection import one_heap
from gateway.settings.environment import variable
from gateway.supervisor.heartbeat import FAILED, TOLD, speaker
from gateway.supervisor.server import serve
from gateway.telemetry.log_lines import log_to


def run(said: Mapping[str, Any]) -> None:
    """Serve until asked to stop. `said["fd"]`: the listening socket; `said["pulse"]`: the pipe for state reports."""
    one_heap()
    log_to()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    say = speaker(said["pulse"])
    try:
        serve(told(said), say)
    except Exception as error:
        say(f"{FAILED}{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    run(orjson.loads(variable(TOLD)))
