"""Lists this user's running gateways, so that commands find the data directory of the right gateway."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from gateway.settings.environment import state_home
from gateway.settings.gateway import Paths


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """One running gateway of this user on this machine."""

    pid: int
    url: str
    data: Path
    started_at: float
    workers: tuple[int, ...] = ()
    policies: tuple[Path, ...] = ()
    """Its folders of policy files."""
    config: Path | None = None
    """Its gateway.yaml; None if it has none."""


def _folder() -> Path:
    return state_home() / "running"


def register(pid: int, data: Path) -> None:
    """Store that process `pid` serves from the data directory `data`. Raises OSError."""
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / str(pid)).write_text(str(data), encoding="utf-8")


def unregister(pid: int) -> None:
    """Remove the entry of process `pid`. Raises OSError."""
    (_folder() / str(pid)).unlink(missing_ok=True)


def running() -> list[RunningGateway]:
    """The registered gateways whose processes still run, oldest first. The entries of other gateways are removed."""
    found = []
    with suppress(OSError):
        for entry in sorted(_folder().iterdir()):
            with suppress(OSError, ValueError):
                gateway = running_on(Path(entry.read_text(encoding="utf-8")))
                if gateway is not None and str(gateway.pid) == entry.name:
                    found.append(gateway)
                elif not _alive(int(entry.name)):
                    entry.unlink(missing_ok=True)
    return sorted(found, key=lambda gateway: gateway.started_at)


def running_on(data: Path) -> RunningGateway | None:
    """The gateway that serves from the data directory `data`, according to its runtime.json; None if there is none."""
    try:
        facts = orjson.loads((data / "runtime.json").read_bytes())
        policies = tuple(map(Path, facts.get("policies", ())))
        workers = tuple(facts["workers"])
        config = Path(facts["config"]) if facts.get("config") else None
        gateway = RunningGateway(facts["pid"], facts["url"], data, facts["started_at"], workers, policies, config)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return gateway if _alive(gateway.pid) else None


def local_model_url(paths: Paths) -> str | None:
    """The URL of the local model that the gateway on this data directory has started; None if there is none."""
    try:
        return str(orjson.loads(paths.runtime.read_bytes())["local_model"]["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process belongs to another user
    return True
