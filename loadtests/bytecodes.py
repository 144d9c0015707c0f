"""How many Python bytecodes and frames one cache miss takes: a count, which a slow machine does not change.

`python -m loadtests bytecodes` opens one worker's application in process, in front of the scripted provider, and traces
the loop's thread while single requests of a cell are answered. The request that took least is judged: during others the
worker's background tasks had a turn. `--against PATH` counts in another checkout too; exit status 1 when this one takes
more than `--tolerance` percent more bytecodes.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import orjson
import uvloop
import yaml

from loadtests import cells, configs
from loadtests.agent_answers import PATHS
from loadtests.processes import Cores
from loadtests.questions import Asked, Dialect, Questions
from loadtests.sessions import Sessions
from loadtests.targets import running_upstream

REPOSITORY = Path(__file__).parents[1]
WARM_UP = 60


class Counter:
    """Of what one thread executes while it is on."""

    def __init__(self) -> None:
        self.bytecodes = self.frames = 0
        self.functions: dict[CodeType, int] = {}
        """Bytecodes by function."""

    def __enter__(self) -> Counter:
        self.bytecodes = self.frames = 0
        self.functions = {}
        sys._getframe().f_trace_opcodes = True  # else Python 3.12 tells of no opcode before the next settrace
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace = self._executed  # else Python 3.13 tells of no opcode in the first call of a function
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.frames += 1
        return self._executed

    def _executed(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "opcode":
            self.bytecodes += 1
            self.functions[frame.f_code] = self.functions.get(frame.f_code, 0) + 1
        return self._executed


@dataclass(frozen=True, slots=True)
class Count:
    """Of the request that took least."""

    bytecodes: int
    frames: int
    functions: dict[str, int]
    """Bytecodes by function."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks the questions of a cell."""

    dialect: Dialect
    bodies: Asked
    everything: bool
    """Whether the gateway has everything on."""

    @classmethod
    def of(cls, cell: str) -> Asking:
        """A cell for agents has one session, so after `WARM_UP` requests its bodies have 370 to 600 KB."""
        (found,) = cells.chosen(f"{cell}-c1", (1,))
        shape = found.shape
        if shape.turns:
            model = "loadtest" if shape.dialect == "chat" else f"loadtest-{shape.dialect}"
            return cls(shape.dialect, Sessions(replace(shape, at_a_time=1), model), everything=False)
        everything = any(entry.target == "everything" for entry in found.entries)
        return cls("chat", Questions(shape, "auto" if everything else "loadtest"), everything)

    async def ask(self, app: Any, secret: str, number: int) -> None:
        """Ask question `number`, and read the whole answer. Raises RuntimeError unless it is a success."""
        path = PATHS[self.dialect]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "scheme": "http",
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"authorization", b"Bearer " + secret.encode())],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }
        pieces = [{"type": "http.request", "body": self.bodies.body(number), "more_body": False}]
        over, statuses = asyncio.Event(), list[int]()

        async def receive() -> Any:
            if pieces:
                return pieces.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await app(scope, receive, send)
        over.set()
        if statuses != [200]:
            raise RuntimeError(f"request {number} was answered with {statuses}")


async def measure(folder: Path, cell: str, requests: int) -> Count:
    """The least of `requests`. Imported here, so that PYTHONPATH decides whose code it is."""
    from gateway.app import Application
    from gateway.policy import keys
    from gateway.settings.gateway import GatewayConfig, Paths, Settings
    from gateway.state.redis.embedded import EmbeddedServer
    from gateway.state.sql.database import Database
    from gateway.wiring import Worker

    asking = Asking.of(cell)
    (folder / "policies").mkdir()
    policy = configs.EVERYTHING if asking.everything else configs.AGENTS
    (folder / "policies" / "counted.yaml").write_text(policy.format(team="counted"))
    with running_upstream(Cores.available()) as upstream:
        gateway = configs.GATEWAY + (configs.SMALL if asking.everything else "")
        config = GatewayConfig.model_validate(yaml.safe_load(gateway.format(upstream=upstream)))
        settings = Settings(config, Paths(folder / "data"), (folder / "policies",))
        settings.paths.data.mkdir()
        server = EmbeddedServer(settings.paths.valkey)
        server.start()
        app = Application(Worker(settings, server.url))
        try:
            async with _lifespan(app):
                database = await asyncio.to_thread(Database, settings.database_url)
                secret, _ = await asyncio.to_thread(keys.create, database, "counted")
                await asyncio.sleep(1.5)
                return await _counted(asking, app, secret, requests)
        finally:
            server.stop()


async def _counted(asking: Asking, app: Any, secret: str, requests: int) -> Count:
    counter, found = Counter(), list[tuple[int, int, dict[CodeType, int]]]()
    for number in range(WARM_UP + requests):
        if number < WARM_UP:
            await asking.ask(app, secret, number)
            continue
        await asyncio.sleep(0.02)
        with counter:
            await asking.ask(app, secret, number)
        found.append((counter.bytecodes, counter.frames, counter.functions))
    bytecodes, frames, functions = min(found, key=lambda each: each[:2])
    named: dict[str, int] = {}
    for code, executed in functions.items():
        name = f"{_module(code.co_filename)}:{code.co_qualname}"
        named[name] = named.get(name, 0) + executed
    return Count(bytecodes, frames, named)


def _module(file: str) -> str:
    """As it is called in every checkout."""
    return file[file.index("gateway/") :] if "gateway/" in file else Path(file).name


class _lifespan:  # noqa: N801 - used as a function
    """Opens and closes an ASGI application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __aenter__(self) -> None:
        self._said: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._heard: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        run = self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, self._said.get, self._heard.put)
        self._task = asyncio.get_running_loop().create_task(run)
        await self._turn("startup")

    async def __aexit__(self, *_: object) -> None:
        await self._turn("shutdown")
        await self._task

    async def _turn(self, what: str) -> None:
        await self._said.put({"type": f"lifespan.{what}"})
        answer = await self._heard.get()
        if answer["type"] != f"lifespan.{what}.complete":
            raise RuntimeError(answer.get("message", what))


def count(checkout: Path, cell: str, requests: int) -> Count:
    """In a process of its own, with the `gateway` of `checkout`. Raises RuntimeError when that fails."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__)), "--measure", "--cell", cell, "--requests", str(requests)]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{checkout}: {done.stderr[-2000:]}")
    return Count(**orjson.loads(done.stdout.splitlines()[-1]))


def differences(ours: Count, theirs: Count) -> list[tuple[str, int, int]]:
    """(function, our bytecodes, theirs), the greatest difference first; equal ones are left out."""
    names = sorted({*ours.functions, *theirs.functions})
    found = [(name, ours.functions.get(name, 0), theirs.functions.get(name, 0)) for name in names]
    return sorted((each for each in found if each[1] != each[2]), key=lambda each: -abs(each[1] - each[2]))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests bytecodes", description=__doc__)
    parser.add_argument("--cell", default="1k", help="for example burst or agent-messages; default: 1k")
    parser.add_argument("--requests", type=int, default=40, help="at most 40 in a cell for agents")
    parser.add_argument("--against", type=Path, help="another checkout of this repository")
    parser.add_argument("--tolerance", type=float, default=2.0, help="percent")
    parser.add_argument("--functions", type=int, default=0, help="of how many to tell what differs, or what they take")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.measure:
        with tempfile.TemporaryDirectory(prefix="tg-count-", ignore_cleanup_errors=True) as folder:
            print(orjson.dumps(asdict(uvloop.run(measure(Path(folder), given.cell, given.requests)))).decode())
        return 0
    ours = count(REPOSITORY, given.cell, given.requests)
    print(f"{ours.bytecodes:,} bytecodes in {ours.frames:,} frames a request of {given.cell}, at least")
    if given.against is None:
        for name, taken in sorted(ours.functions.items(), key=lambda each: -each[1])[: given.functions]:
            print(f"{taken:6}  {name}")
        return 0
    theirs = count(given.against.resolve(), given.cell, given.requests)
    more = ours.bytecodes / theirs.bytecodes - 1
    print(f"{theirs.bytecodes:,} bytecodes in {theirs.frames:,} frames in {given.against}: {more:+.1%}")
    for name, here, there in differences(ours, theirs)[: given.functions]:
        print(f"{here - there:+6} = {here} - {there}  {name}")
    return int(more > given.tolerance / 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
