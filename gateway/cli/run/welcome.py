"""Prints the welcome of `thriftgate serve --demo`: the address, the tour, and the next steps."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from gateway.backends.providers.discover import packaged_name
from gateway.cli.develop.tour import write_policy
from gateway.cli.run.start import LOG, Terminal
from gateway.policy.keys import create
from gateway.settings.environment import define, variable
from gateway.settings.gateway import Settings
from gateway.state.sql.database import Database
from gateway.supervisor.local_model import find_weights

TOUR_URL = "TOUR_ALERT_URL"
"""The environment variable for budget alerts to which the tour's policy refers."""


def prepared(settings: Settings, team: str) -> Settings:
    """Write the policy of a new team to a folder of the team. Set a local address for the team's alerts.

    Each start uses a new team with an empty cache and an unspent budget, so that the tour always shows the same
    results.
    """
    folder = settings.paths.data / "tour"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in folder.glob("*.yaml"):
        old.unlink()
    write_policy(folder, team, TOUR_URL, packaged_name(settings.config.local_model) if find_weights(settings) else None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        define(TOUR_URL, f"http://127.0.0.1:{probe.getsockname()[1]}/alert")
    return replace(settings, policies=(*settings.policies, folder))


def history_team(settings: Settings) -> str | None:
    """The first invented team, if there is a demo history and no tour is wanted; otherwise None.

    A new team would have nothing to show on the page.
    """
    if _tour_wanted():
        return None
    from gateway.cli.develop.history import TEAMS, has_history

    return TEAMS[0].name if has_history(settings) else None


def _tour_wanted() -> bool:
    return variable("TOUR", "1") != "0"


class Welcome:
    """Prints the welcome on the terminal when the gateway answers. The team's policy must have been written before
    (`prepared`, or `thriftgate dev history`)."""

    def __init__(self, settings: Settings, config: Path | None, team: str, terminal: Terminal) -> None:
        self._settings, self._config, self._team, self._terminal = settings, config, team, terminal
        self._stopping = threading.Event()

    def options(self) -> dict[str, Any]:
        """The arguments of Supervisor that are necessary for the tour."""
        alert_url = variable(TOUR_URL)
        facts = {"tour": {"variable": TOUR_URL, "alert_url": alert_url}} if alert_url else {}
        return {"facts": facts, "announce": self._announce, "on_ready": self._start}

    def _announce(self, line: str) -> None:
        if line.startswith("finishing"):
            self._stopping.set()
        if not line.startswith("listening on"):  # the welcome has the address
            self._terminal.tell(line)

    def _start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        runtime = _ready(self._settings.paths.runtime)
        if runtime is None:
            return
        base = f"http://{runtime['host']}:{runtime['port']}"
        secret = _demo_key(self._settings, self._team)
        self._terminal.tell(_head(base, secret, self._team))
        if _tour_wanted():
            command = [sys.executable, "-m", "gateway.cli.main", "demo", "--data-dir", str(self._settings.paths.data)]
            command += ["--team", self._team, *(["--config", str(self._config)] if self._config else [])]
            subprocess.run(  # noqa: S603 - our own command
                command, check=False, stdout=self._terminal.out, stderr=self._terminal.err
            )
        if not self._stopping.is_set():
            self._terminal.tell(_next(base, secret, self._team, self._settings))


def _ready(runtime: Path, patience_s: float = 60.0) -> dict[str, Any] | None:
    """Wait until /health/ready succeeds, at most `patience_s` seconds. Returns the contents of runtime.json; None if
    the gateway is not ready in time."""
    from urllib.error import URLError
    from urllib.request import urlopen

    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        try:
            found: dict[str, Any] = orjson.loads(runtime.read_bytes())
            if found["pid"] != os.getpid():
                raise ValueError("another gateway's, or one that was killed")
            with urlopen(f"http://{found['host']}:{found['port']}/health/ready", timeout=1):
                return found
        except (OSError, URLError, ValueError, KeyError):
            time.sleep(0.05)
    return None


def _demo_key(settings: Settings, team: str) -> str:
    database = Database(settings.database_url)
    try:
        if history_team(settings) == team:
            from gateway.cli.develop.history import page_key

            return page_key(database)
        return create(database, team, name="demo", scopes=("inference", "usage"), expires_at=time.time() + 86400)[0]
    finally:
        database.close()


def _head(base: str, secret: str, team: str) -> str:
    return f"""
Thriftgate is ready.
  Base URL  {base}/v1
  Page      {base}/dashboard   (asks for the key)
  Demo key  {secret}
            (team {team}, valid for a day)
"""


def _next(base: str, secret: str, team: str, settings: Settings) -> str:
    """Text with requests to paste into a terminal, and three commands to try."""
    command = _command()
    return f"""
Ask it yourself:

curl {base}/v1/chat/completions \\
  -H "Authorization: Bearer {secret}" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "auto", "messages": [{{"role": "user", "content": "Hello"}}]}}'

from openai import OpenAI
client = OpenAI(base_url="{base}/v1", api_key="{secret}")

Next, in a second terminal:
  {command} logs -f
  {command} savings --team {team}
  {command} connect claude-code --team mine

Log: {settings.paths.data / LOG}
Still serving on {base}; Ctrl-C ends it."""


def _command() -> str:
    """The command that calls this program in the working directory."""
    if shutil.which("thriftgate"):
        return "thriftgate"
    script, here = Path(sys.executable).with_name("thriftgate"), Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)
