"""`thriftgate connect`: makes a key, prints or writes a client's settings, and tests the settings with one request."""

from __future__ import annotations

import http.client
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import orjson

from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.cli.teams.client_settings import ANTHROPIC, CLIENTS, Client, Connection, write
from gateway.cli.teams.default_policy import note_default_policy
from gateway.domain.tenant import Key
from gateway.domain.units import parse_duration
from gateway.policy import keys as store
from gateway.settings.gateway import Settings
from gateway.settings.running import running_on

PATIENCE_S = 60.0
KEY_S = 3.0
"""Maximum seconds to wait until a new key works. Usually a key works after one second, on a busy machine a little
later."""


@click.command()
@common
@click.argument("client", type=click.Choice(tuple(CLIENTS)), metavar="CLIENT")
@click.option("--team", help="The team that pays; a key is made for it. Not with --key.")
@click.option("--key", help="Use this key instead of making a new one.")
@click.option("--expires", help="Lifetime of the new key, e.g. 90d; default: until revoked.")
@click.option("--url", help="The gateway's address for the client; default: that of the running gateway.")
@click.option("--model", default="auto", show_default=True, help="The model name that the client sends.")
@click.option("--write", "writes", is_flag=True, help="Write the client's settings file instead of printing.")
@click.option("--no-check", "unchecked", is_flag=True, help="Do not test the connection with a request.")
def connect(
    context: Context,
    client: str,
    team: str | None,
    key: str | None,
    expires: str | None,
    url: str | None,
    model: str,
    writes: bool,
    unchecked: bool,
) -> None:
    """Print the settings with which CLIENT uses the gateway, and test them with one small request.

    CLIENT is one of claude-code, codex, opencode, qwen-code, aider, continue, cursor, cline, openwebui, langchain, env.
    The request asks for one word and is charged to the team like any other. If it fails, the new key is revoked and
    nothing is written. If --write changes a settings file, the old file is kept as FILE.before-thriftgate.

    \b
    thriftgate connect claude-code --team search
    thriftgate connect opencode --team search --write
    """
    if (team is None) == (key is None):
        raise click.UsageError("Give either --team, to make a key for it, or an existing key with --key.")
    if writes and CLIENTS[client].merged is None:
        raise click.UsageError(f"{CLIENTS[client].title} has no settings file that can be written; leave out --write.")
    settings = context.of_running()
    address = url.rstrip("/").removesuffix("/v1") if url else _url(settings)
    made = None if team is None else _new_key(settings, team, client, expires)
    if team is not None:
        note_default_policy(context, settings, team)
    at = Connection(address, key or (made[0] if made else ""), model)
    chosen = CLIENTS[client]
    checked = None if unchecked else _check(chosen, at)
    if checked is not None and checked["status"] != 200:
        _undo(context, settings, at, checked, made[1].id if made else None)
        raise SystemExit(1)
    try:
        written = _write(chosen, at) if writes else None
    except click.ClickException as error:
        raise click.ClickException(f"{error.message} {_revoked(settings, made[1].id if made else None)}") from error
    value: dict[str, Any] = {
        "client": client,
        "url": at.url,
        "key": at.key,
        "model": model,
        "settings": chosen.lines(at),
    }
    value |= {"written": str(written) if written else None, "check": checked}
    context.print(value, lambda: _show(chosen, at, written, checked))


def _undo(context: Context, settings: Settings, at: Connection, checked: dict[str, Any], key_id: str | None) -> None:
    """Revoke the key that was made, and print the result of the test. No settings were written."""
    kept = f"{_revoked(settings, key_id)} To get the settings without a test, add --no-check."
    value = {"url": at.url, "model": at.model, "check": checked, "revoked": key_id, "written": None}
    context.print(value, lambda: echo(f"{_tried(at, checked)}\n{kept}", err=True))


def _revoked(settings: Settings, key_id: str | None) -> str:
    """Revoke the key that was made, if there is one. Returns a sentence about the result."""
    if key_id is None:
        return "No settings were written."
    with open_database(settings) as database:
        store.revoke(database, key_id)
    return f"No settings were written, and the new key {key_id} is revoked."


def _tried(at: Connection, checked: dict[str, Any]) -> str:
    if checked["status"] == 200:
        return f"Tried: {checked['backend'] or 'the cache'} answered ({checked['cost-usd'] or 'cost unknown'} USD)."
    if checked["status"]:
        return f"Tried: the gateway answered {checked['status']}: {checked['error']}"
    return f"Tried: {at.url} could not be reached: {checked['error']}"


def _url(settings: Settings) -> str:
    gateway = running_on(settings.paths.data)
    if gateway is None:
        raise click.ClickException(
            f"No gateway runs on {settings.paths.data}; start one with `thriftgate serve`, or give its address with "
            "--url."
        )
    return gateway.url


def _new_key(settings: Settings, team: str, client: str, expires: str | None) -> tuple[str, Key]:
    """Make a key. Returns its secret and the stored key."""
    try:
        store.check_team(team)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--team") from error
    try:
        expires_at = time.time() + parse_duration(expires) if expires else None
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with open_database(settings) as database:
        return store.create(database, team, name=client, scopes=("inference",), expires_at=expires_at)


def _write(client: Client, at: Connection) -> Path:
    try:
        return write(client, Path.home(), at)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{error}.") from error


def _check(client: Client, at: Connection) -> dict[str, Any]:
    """Send one request with these settings. Returns the status. If the request succeeded, also returns the backend and
    the cost; otherwise, the gateway's error."""
    until = time.monotonic() + KEY_S
    while True:
        found = _ask(client, at)
        if found["status"] != 401 or time.monotonic() > until:
            return found
        time.sleep(0.2)


def _ask(client: Client, at: Connection) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Answer with the one word: ready"}]
    body = orjson.dumps({"model": at.model, "max_tokens": 32, "messages": messages})
    headers = {"authorization": f"Bearer {at.key}", "content-type": "application/json"}
    if client.path == ANTHROPIC:
        headers["anthropic-version"] = "2023-06-01"
    try:
        connection = _connection(at.url)
        try:
            connection.request("POST", urlsplit(at.url).path + client.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return {"status": 0, "error": str(error) or type(error).__name__}
    if answer.status == 200:
        named = {name: answer.getheader(f"x-thriftgate-{name}") for name in ("backend", "model", "cost-usd")}
        return {"status": 200, **named}
    return {"status": answer.status, "error": _error(data)}


def _connection(url: str) -> http.client.HTTPConnection:
    place = urlsplit(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    return kind(place.hostname or "", place.port, timeout=PATIENCE_S)


def _error(data: bytes) -> str:
    try:
        return str(orjson.loads(data)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode("utf-8", "replace")


def _show(client: Client, at: Connection, written: Path | None, checked: dict[str, Any] | None) -> None:
    if written is None:
        echo(client.lines(at))
    else:
        echo(f"{written} now has the gateway's address and the key.")
    echo(f"\nThe key is shown only now. Settings of {client.title}; more: docs/how-to/coding-agents.md", err=True)
    if checked is not None:
        echo(_tried(at, checked), err=True)
