"""The last accepted gateway.yaml: workers start from it, however often they restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings, load_settings

FIXED = ("listen", "state", "ledger", "local_model")
"""Sections that the supervisor itself has acted on."""


class Accepted:
    """A copy in the data directory, so that a file half edited is not what replaces a worker that died."""

    def __init__(self, settings: Settings, source: Path | None) -> None:
        """`source`: the file that `settings` were read from; None: the one in the working directory, if there."""
        here = Path("gateway.yaml")
        self._source = source or (here.absolute() if here.is_file() else None)
        self.path = settings.paths.accepted
        self.settings = settings
        self._before = settings

    def keep(self) -> None:
        """Copy the file. Raises ConfigError when it has gone, or the data directory cannot be written."""
        self._copy().replace(self.path)

    def renew(self) -> Settings:
        """Apply the file's current content. Raises ConfigError; then nothing has changed."""
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
        """No worker could start from what was taken over last."""
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
