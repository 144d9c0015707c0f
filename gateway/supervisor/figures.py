"""The supervisor's figures for /metrics: itself, its children, the ledger, ended workers."""

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
"""A key of `telemetry.exposition.OF_SUPERVISOR`, its labels, the value."""


class SupervisorFigures(Protocol):
    """What has figures to publish, and processes by their pids."""

    def figures(self) -> Iterator[Figure]: ...
    def processes(self) -> Iterator[tuple[str, int | None]]: ...


def by_cause(key: str, counts: Mapping[str, int]) -> Iterator[Figure]:
    """A counter with one label."""
    for cause, count in counts.items():
        yield key, (cause,), count


class Figures:
    """Open before the first worker starts."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError for a directory that cannot be used."""
        try:
            self._archive = Archive(folder)
        except OSError as error:
            raise ConfigError([f"{folder}: cannot be used for figures: {error.strerror}"]) from error

    async def run(self, parts: Iterable[SupervisorFigures]) -> None:
        """Publish until cancelled."""
        parts, silent = tuple(parts), False
        while True:
            told = {
                "figures": [figure for part in parts for figure in part.figures()],
                "processes": {name: pid for part in parts for name, pid in part.processes() if pid},
            }
            try:
                await asyncio.to_thread(self._archive.write, told)
            except OSError as error:
                if not silent:
                    log.error("the supervisor's figures cannot be published: %s", error)
                silent = True
            else:
                silent = False
            await asyncio.sleep(PUBLISH_S)

    def close(self) -> None:
        self._archive.close()
