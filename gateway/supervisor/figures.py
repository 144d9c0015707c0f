"""Publishes the supervisor's figures for /metrics: figures of the supervisor itself, its child processes, the ledger,
and workers that have ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from gateway.settings.files import ConfigError
from gateway.telemetry.host import PUBLISH_S, Archive

log = logging.getLogger(__name__)

Figure = tuple[str, tuple[str, ...], float]
"""(Key in `telemetry.exposition.OF_SUPERVISOR`, values of its labels, value)."""


class SupervisorFigures(Protocol):
    """The interface of those parts of the supervisor that have figures to publish."""

    def figures(self) -> Iterator[Figure]: ...
    def processes(self) -> Iterator[tuple[str, int | None]]:
        """Yield the name and the process id of each process. The process id is None if the process is not running."""
        ...


def by_cause(key: str, counts: Mapping[str, int]) -> Iterator[Figure]:
    """Yield the figures of the counter `key`, whose only label is the cause. `counts`: cause → count."""
    for cause, count in counts.items():
        yield key, (cause,), count


class Figures:
    """Publishes the figures of the supervisor's parts. Create the object before the first worker starts."""

    def __init__(self, folder: Path) -> None:
        """Prepare the directory of the figures. Raises ConfigError if `folder` cannot be used."""
        try:
            self._archive = Archive(folder)
        except OSError as error:
            raise ConfigError([f"{folder}: cannot be used for figures: {error.strerror}"]) from error

    async def run(self, parts: Iterable[SupervisorFigures]) -> None:
        """Publish the figures of `parts` until cancelled."""
        parts, silent = tuple(parts), False
        while True:
            totals = {
                "figures": [figure for part in parts for figure in part.figures()],
                "processes": {name: pid for part in parts for name, pid in part.processes() if pid},
            }
            try:
                await asyncio.to_thread(self._archive.write, totals)
            except OSError as error:
                if not silent:
                    log.error("the supervisor's figures cannot be published: %s", error)
                silent = True
            else:
                silent = False
            await asyncio.sleep(PUBLISH_S)

    def close(self) -> None:
        self._archive.close()
