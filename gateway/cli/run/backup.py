"""`thriftgate backup` and `restore`: copy the data that cannot be created again, and verify the copy."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import orjson

from gateway import __version__
from gateway.cli import tables
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.ledger.store import anchor
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import Verdict
from gateway.ledger.store.verify import verify as verified
from gateway.settings.gateway import GatewayConfig, Paths, Settings
from gateway.settings.running import running_on

MANIFEST = "backup.json"


@click.command()
@common
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--with-files", is_flag=True, help="Also copy uploaded files and batch results.")
def backup(context: Context, folder: Path, with_files: bool) -> None:
    """Copy ledger, keys, journal, pseudonym key and prices into FOLDER, and verify the copy.

    The gateway may run meanwhile. FOLDER must be empty or absent; only its owner can read the copy. A PostgreSQL
    database is not copied: use its own tools. `gateway.yaml`, policies and provider keys are not in the data directory
    and not in the copy.

    \b
    thriftgate backup /backups/monday
    """
    settings = context.of_running()
    paths, target = settings.paths, Paths(folder.absolute())
    embedded = settings.config.ledger.database_url is None
    if embedded and not paths.sqlite.is_file():
        raise click.ClickException(f"{paths.data}: contains no ledger; give the gateway's directory with --data-dir.")
    _require_empty(target.data)
    try:
        target.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(target.data, 0o700)
    except OSError as error:
        raise click.ClickException(f"{folder}: cannot be written: {error.strerror}.") from error
    with tables.working("copying"):
        copied = list(_copy_files(paths, target, with_files))  # the journal before the database: see `restore`
        if embedded:
            _copy_sqlite(paths.sqlite, target.sqlite)
            copied.append(target.sqlite)
    with tables.working("verifying the copy"):
        # Before the digests, because it migrates old tables.
        verdict = _verify(target) if target.sqlite.is_file() else None
        digests = {str(path.relative_to(target.data)): _digest(path) for path in copied}
    made = {"version": __version__, "made_at": time.time(), "files": digests}
    _write_private(target.data / MANIFEST, orjson.dumps(made, option=orjson.OPT_INDENT_2))
    _report(context, f"{len(copied)} files are in {target.data}.", {"folder": str(target.data), **made}, verdict)


@click.command()
@common
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def restore(context: Context, folder: Path) -> None:
    """Copy the backup in FOLDER into an empty --data-dir, and verify it.

    Every file is compared with the digest that `backup` wrote. When the gateway starts, rows that are both in the
    journal and in the ledger are counted once.

    \b
    thriftgate restore /backups/monday --data-dir new-data
    """
    paths = context.settings().paths
    if running_on(paths.data) is not None:
        raise click.ClickException(f"A gateway runs on {paths.data}; stop it first.")
    _require_empty(paths.data)
    try:
        made: dict[str, Any] = orjson.loads((folder / MANIFEST).read_bytes())
        files: dict[str, str] = made["files"]
    except OSError as error:
        raise click.ClickException(
            f"{folder}: is not a copy made by `thriftgate backup`: {MANIFEST}: {error.strerror}."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{folder}: is not a copy made by `thriftgate backup` ({error}).") from error
    with tables.working("comparing the copy with its digests"):
        for name, digest in files.items():
            _check(folder, name, digest)
    paths.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tables.working("copying and verifying"):
        for name in files:
            _copy(folder / name, paths.data / name)
        verdict = _verify(paths) if paths.sqlite.is_file() else None
    _report(context, f"{len(files)} files are in {paths.data}.", {"data_dir": str(paths.data), **made}, verdict)


def _copy_files(paths: Paths, target: Paths, with_files: bool) -> Iterator[Path]:
    folders = [paths.journal, *([paths.files] if with_files else [])]
    inside = [path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*"))]
    for path in (*inside, paths.anchor, paths.pseudonyms, paths.prices):
        if path.is_file() and not path.is_symlink():
            copy = target.data / path.relative_to(paths.data)
            try:
                _copy(path, copy)
            except FileNotFoundError:
                continue  # the gateway has just written this journal segment into the database, which is copied next
            yield copy


def _copy(source: Path, copy: Path) -> None:
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(source, copy)
    copy.chmod(0o600)


def _copy_sqlite(source: Path, copy: Path) -> None:
    """Make a consistent copy of an SQLite database that may be in use."""
    copy.touch(mode=0o600)
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database,
        closing(sqlite3.connect(copy)) as target,
    ):
        database.backup(target, pages=1024)


def _verify(paths: Paths) -> Verdict:
    """Verify the ledger in `paths`, as `thriftgate ledger verify` does. Returns the result."""
    settings = Settings(GatewayConfig(), paths, ())
    try:
        anchors = anchor.read(paths.anchor)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    with open_database(settings) as database, snapshot(database) as connection:
        return verified(connection, anchors)


def _check(folder: Path, name: str, digest: str) -> None:
    """Check one file. Raises ClickException if it is missing, changed, or outside of `folder`."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise click.ClickException(f"{folder / MANIFEST}: names a file outside the folder: {name}.")
    if not path.is_file():
        raise click.ClickException(f"{path}: is missing from the copy; nothing was restored.")
    if _digest(path) != digest:
        raise click.ClickException(f"{path}: was changed since `backup` wrote it; nothing was restored.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(f"{folder}: is not empty; give an empty or a new folder.")


def _write_private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def _report(context: Context, text: str, value: dict[str, Any], verdict: Verdict | None) -> None:
    if verdict is None:
        context.print({**value, "ok": None}, f"{text} The ledger is in PostgreSQL and was not copied.")
        return
    wrong = [finding.what for finding in verdict.findings]
    entries = sum(chain.entries for chain in verdict.chains)
    text += f" The ledger's {entries} entries are unchanged." if not wrong else f" WRONG: {'; '.join(wrong)}"
    context.print({**value, "ok": not wrong, "entries": entries, "findings": wrong}, text)
    if wrong:
        raise SystemExit(1)
