"""`thriftgate serve`: starts the gateway, prints what it found and, in demo mode, runs the tour."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli.develop.tour import write_policy
from gateway.cli.echo import echo
from gateway.cli.options import Context, common
from gateway.domain.tenant import Key
from gateway.policy.keys import create
from gateway.settings.environment import define, variable
from gateway.settings.gateway import Settings
from gateway.state.sql.database import Database
from gateway.telemetry.log_lines import log_to

DEMO_TEAM = "demo"
TOUR_URL = "TOUR_ALERT_URL"
"""The environment variable for budget alerts to which the tour's policy refers."""


@click.command()
@common
@click.option("--host", help="Address to listen on; default: the address in gateway.yaml, else 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0: a free port. Default: the port in gateway.yaml, else 8080."
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Worker processes.")
@click.option("--demo", is_flag=True, help="Add a simulated large tier if no stronger one is found, and run the tour.")
def serve(context: Context, host: str | None, port: int | None, workers: int, demo: bool) -> None:
    """Start the gateway. Ctrl-C ends it after open streams have finished.

    Without a gateway.yaml it uses what it finds on this machine: provider keys in the environment, OpenAI-compatible
    servers on the usual local ports, and the packaged local model. The state server is an embedded Valkey; the ledger
    is an SQLite database in --data-dir.

    \b
    thriftgate serve --port 8080 --policies policies
    """
    from gateway.supervisor.supervisor import Supervisor

    log_to(sys.stderr)
    os.umask(0o077)  # for this process and its children, since their files contain prompts, answers and spend
    settings = context.settings(keys=True)
    team = f"{DEMO_TEAM}-{secrets.token_hex(3)}"
    if demo:
        settings = _for_the_tour(settings, team)

    def welcome() -> None:
        threading.Thread(target=_welcome, args=(settings, context.config, team), daemon=True).start()

    Supervisor(
        settings,
        config=context.config,
        workers=workers,
        host=host or settings.config.listen.host,
        port=settings.config.listen.port if port is None else port,
        simulate=demo,
        facts={"tour": {"variable": TOUR_URL, "alert_url": variable(TOUR_URL)}} if demo else None,
        announce=lambda line: echo(f"  {line}", err=True),
        on_ready=welcome if demo else lambda: None,
    ).run()


def _for_the_tour(settings: Settings, team: str) -> Settings:
    """Write the policy of a new team to its own folder, and set a local address for the team's alerts.

    Each start uses a new team with an empty cache and an unspent budget, so that the tour always shows the same
    results.
    """
    folder = settings.paths.data / "tour"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in folder.glob("*.yaml"):
        old.unlink()
    write_policy(folder, team, TOUR_URL)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        define(TOUR_URL, f"http://127.0.0.1:{probe.getsockname()[1]}/alert")
    return replace(settings, policies=(*settings.policies, folder))


def _welcome(settings: Settings, config: Path | None, team: str) -> None:
    """When the gateway is ready, print lines to paste and run the tour."""
    from gateway.cli import tables  # imported late, because only the tour needs Rich

    runtime = _ready(settings.paths.runtime)
    if runtime is None:
        return
    console = tables.console(stderr=True, highlight=False)
    base = f"http://{runtime['host']}:{runtime['port']}"
    secret, _ = _demo_key(settings, team)
    console.rule("Thriftgate is ready")
    console.print(_paste(base, secret, team), soft_wrap=True, markup=True)
    console.rule()
    if variable("TOUR", "1") == "0":
        return
    command = [sys.executable, "-m", "gateway.cli.main", "demo", "--data-dir", str(settings.paths.data)]
    command += ["--team", team, *(["--config", str(config)] if config else [])]
    subprocess.run(command, check=False)  # noqa: S603 - our own command
    console.print(f"Still serving on {base}; Ctrl-C ends it.")


def _ready(runtime: Path, patience_s: float = 60.0) -> dict[str, Any] | None:
    """The gateway's runtime facts, after /health/ready has succeeded; None if that takes too long."""
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


def _demo_key(settings: Settings, team: str) -> tuple[str, Key]:
    database = Database(settings.database_url)
    try:
        return create(database, team, name="demo", scopes=("inference", "usage"), expires_at=time.time() + 86400)
    finally:
        database.close()


def _paste(base: str, secret: str, team: str) -> str:
    return f"""[bold]Base URL[/]  {base}/v1
[bold]Demo key[/]  {secret}   (team {team}, valid for a day)
[bold]Dashboard[/] {base}/dashboard   (asks for the key)

[bold]curl[/]
curl {base}/v1/chat/completions \\
  -H "Authorization: Bearer {secret}" -H "Content-Type: application/json" \\
  -d '{{"model": "auto", "messages": [{{"role": "user", "content": "How many days are in a week?"}}]}}'

[bold]Python[/]
from openai import OpenAI
client = OpenAI(base_url="{base}/v1", api_key="{secret}")
print(client.chat.completions.create(model="auto",
      messages=[{{"role": "user", "content": "How many days are in a week?"}}]).choices[0].message.content)"""
