"""Runs the tests in several processes (`pytest -n 6`), forked from one that has collected all tests.

Each process of pytest-xdist imports and collects everything anew, ten seconds of computing and more each. Here a forked
process has all that already; it takes the tests of one file after another from a queue and sends their reports to the
first process, which shows and counts them.
"""

from __future__ import annotations

import atexit
import os
import random
import struct
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory
from pytest_rerunfailures import StatusDB

_NUMBER = struct.Struct("i")

Report = dict[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workers")
    # pytest keeps short options in lower case for itself; this one is known from pytest-xdist.
    group._addoption("-n", dest="workers", type=int, default=0, metavar="N", help="run the tests in N forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if not option.workers or option.collectonly or option.usepdb or session.testsfailed or not session.items:
        return None  # pytest's own loop runs the tests, or says why there are none to run
    Run(session).until_all_ended(option.workers)
    return True


class SharedReruns(StatusDB):  # type: ignore[misc]
    """Counts the repeated runs of tests over all processes, for --max-suite-reruns."""

    def __init__(self) -> None:
        super().__init__()
        # Without the context, Python 3.14 expects processes that are not forked, and starts another that watches it.
        self._count: Synchronized[int] = get_context("fork").Value("i", 0)

    def increment_suite_reruns(self) -> int:
        with self._count:
            self._count.value += 1
            return self._count.value

    def try_increment_suite_reruns(self, max_cap: int) -> bool:
        with self._count:
            free = self._count.value < max_cap
            self._count.value += free
            return free

    def decrement_suite_reruns(self) -> None:
        with self._count:
            self._count.value = max(self._count.value - 1, 0)

    def get_suite_reruns(self) -> int:
        return self._count.value


@dataclass
class Worker:
    """What the first process knows of a forked one."""

    pid: int
    reports: Connection
    todo: list[pytest.Item]
    """The tests left of the file that it runs."""
    finished: bool = False


class Elsewhere(pytest.Item):
    """Stands for the next test while its file is not known: of the fixtures, only those of the session stay."""

    def runtest(self) -> NoReturn:
        raise NotImplementedError


class Run:
    """The tests of a session, by file, and the processes that run them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._config = session, session.config
        by_file: dict[Path, list[pytest.Item]] = {}
        for item in session.items:
            by_file.setdefault(item.path, []).append(item)
        self._files = list(by_file.values())
        self._elsewhere = Elsewhere.from_parent(session, name="another file")
        self._queue, end = os.pipe()  # what is read from it is taken from all processes
        os.write(end, b"".join(_NUMBER.pack(number) for number in range(len(self._files))))
        os.close(end)
        self._running: dict[Connection, Worker] = {}
        self._forked = 0
        self._config.failures_db = SharedReruns()  # type: ignore[attr-defined]

    def until_all_ended(self, most: int) -> None:
        """Raises pytest.Session.Failed or Interrupted as pytest's own loop."""
        if reporter := self._config.pluginmanager.getplugin("terminalreporter"):
            reporter.showfspath = False  # files alternate: each dot would stand on a line of its own
        for _ in range(min(most, len(self._files))):
            self._fork([])
        try:
            while self._running:
                self._listen()
        except KeyboardInterrupt:  # which the others got too
            self._drain()
            for worker in self._running.values():
                os.waitpid(worker.pid, 0)
            raise
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _listen(self) -> None:
        for ready in wait(list(self._running)):
            worker = self._running[ready]  # type: ignore[index]
            try:
                told = worker.reports.recv()
            except EOFError:
                told = None
            if told is None:
                self._ended(worker)
            else:
                self._hear(worker, *told)
        if self._session.shouldfail or self._session.shouldstop:
            self._drain()

    def _fork(self, first: list[pytest.Item]) -> None:
        """Start a process, which runs the tests `first` before it takes those of a file."""
        ours, theirs = Pipe(duplex=False)
        name, self._forked = f"worker-{self._forked}", self._forked + 1
        folder = self._tmp_path_factory.mktemp(name, numbered=False)
        pid = os.fork()
        if pid == 0:
            ours.close()
            for connection in self._running:
                connection.close()
            self._tmp_path_factory._basetemp = folder
            self._work(theirs, first)
        theirs.close()
        self._running[ours] = Worker(pid, ours, list(first))

    @property
    def _tmp_path_factory(self) -> TempPathFactory:
        found: TempPathFactory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        return found

    def _drain(self) -> None:
        """Let no process begin another file."""
        for _ in self._taken():
            pass

    def _taken(self) -> Iterator[int]:
        """The numbers of files, each of which one process gets."""
        while number := os.read(self._queue, _NUMBER.size):
            yield _NUMBER.unpack(number)[0]

    # What a forked process does

    def _work(self, reports: Connection, first: Sequence[pytest.Item]) -> NoReturn:
        failed = None
        try:
            _leave_the_terminal(self._config)
            atexit._clear()  # what was registered is the first process's to do
            random.seed()
            reporter = Reporter(self._config, reports)
            self._config.pluginmanager.register(reporter)
            reporter.open = True
            self._run_all(reports, first)
        except BaseException:
            failed = traceback.format_exc()
        try:
            self._session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
        except BaseException:
            failed = failed or traceback.format_exc()
        reports.send(("end", failed))
        os._exit(0)

    def _run_all(self, reports: Connection, first: Sequence[pytest.Item]) -> None:
        self._run_file(first)
        for number in self._taken():
            reports.send(("file", number))
            self._run_file(self._files[number])

    def _run_file(self, items: Sequence[pytest.Item]) -> None:
        for item, following in zip_longest(items, items[1:], fillvalue=self._elsewhere):
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._session.shouldfail or self._session.shouldstop:
                self._drain()
                return

    # What the first process does

    def _hear(self, worker: Worker, event: str, value: Any) -> None:
        hook = self._config.hook
        if event == "file":
            worker.todo = list(self._files[value])
        elif event == "test":
            item = worker.todo.pop(0)
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for data in value:
                report = hook.pytest_report_from_serializable(config=self._config, data=data)
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif event == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=value)
        else:
            worker.finished = True
            if value is not None:
                self._session.shouldfail = f"a process of the tests failed outside a test:\n{value}"

    def _ended(self, worker: Worker) -> None:
        worker.reports.close()
        del self._running[worker.reports]
        _, status = os.waitpid(worker.pid, 0)
        if worker.finished:
            return
        what = f"the process that ran it ended with status {os.waitstatus_to_exitcode(status)}"
        if not worker.todo:
            self._session.shouldfail = what.replace("it", "tests", 1)
            return
        item, *rest = worker.todo
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", what, "call")
        self._config.hook.pytest_runtest_logreport(report=report)
        self._fork(rest)


class Reporter:
    """Sends what happens in a forked process to the first one: for each test one message."""

    def __init__(self, config: pytest.Config, reports: Connection) -> None:
        self._config, self._reports = config, reports
        self._of_test: list[Report] = []
        self.open = False
        """Until it is, it is told what the first process has been told already."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._of_test.append(data)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        done = yield
        self._reports.send(("test", self._of_test))
        self._of_test = []
        return done

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        if not self.open:
            return
        found = warning_message
        sent = warnings.WarningMessage(str(found.message), found.category, found.filename, found.lineno)
        told = {"warning_message": sent, "when": when, "nodeid": nodeid, "location": location}
        self._reports.send(("warning", told))


def _leave_the_terminal(config: pytest.Config) -> None:
    """Show nothing, and capture output in files of this process."""
    config.pluginmanager.unregister(name="terminalreporter")
    capture: CaptureManager = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
