"""Keeps the last valid gateway.yaml, from which all workers start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings, load_settings

FIXED = ("listen", "state", "ledger", "local_model")
"""Sections of gateway.yaml that the supervisor reads only at its own start."""


class Accepted:
    """Keeps a copy of gateway.yaml in the data directory. Workers read this copy, so a worker that starts while
    somebody edits gateway.yaml never reads a half-finished file."""

    def __init__(self, settings: Settings, source: Path | None) -> None:
        """`source`: the file from which `settings` were read. None means gateway.yaml in the working directory, if
        there is one."""
        here = Path("gateway.yaml")
        self._source = source or (here.absolute() if here.is_file() else None)
        self.path = settings.paths.accepted
        self.settings = settings
        self._before = settings

    def keep(self) -> None:
        """Copy gateway.yaml. Raises ConfigError if it cannot be read or if the data directory cannot be written."""
        self._copy().replace(self.path)

    def renew(self) -> Settings:
        """Accept the present gateway.yaml and return its settings. If it is invalid or changes a section in `FIXED`,
        raises ConfigError and keeps the accepted copy."""
        fresh = self._copy()
        try:
            read = load_settings(fresh, self.settings.paths.data, self.settings.policies)
        except ConfigError as error:
            raise ConfigError([problem.replace(str(fresh), str(self._source)) for problem in error.problems]) from error
        moved = [name for name in FIXED if getattr(read.config, name) != getattr(self.settings.config, name)]
        if moved:
            raise ConfigError([f"{self._source}: {', '.join(moved)}: a change there needs a restart"])
        self.path.replace(self._aside)
        fresh.replace(self.path)
        self._before = self.settings
        self.settings = replace(self.settings, config=read.config, reserved=read.reserved)
        return self.settings

    def revert(self) -> Settings:
        """Return to the settings before the last `renew`, because no worker became ready with the new ones."""
        self._aside.replace(self.path)
        self.settings = self._before
        return self.settings

    @property
    def _aside(self) -> Path:
        return self.path.with_suffix(".before")

    def _copy(self) -> Path:
        copy = self.path.with_suffix(".new")
        try:
            text = self._source.read_bytes() if self._source else b"{}\n"
            copy.touch(mode=0o600)
            copy.write_bytes(text)
        except OSError as error:
            raise ConfigError([f"{error.filename}: {error.strerror}"]) from error
        return copy
