"""A gateway with every kind of backend on a provider whose answers can be changed, and what has to stay true of it."""

from __future__ import annotations

import contextlib
import re
import resource
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fuzz.answers import FuzzedProvider, Running
from tests.fuzz.mutate import written
from tests.fuzz.seeds import HELLO
from tests.fuzz.wire import Answer, Client
from tests.support.waiting import wait_until

BACKEND = """\
  - {{name: "{name}", kind: {kind}, base_url: "http://127.0.0.1:{port}/v1", model: "scripted-{name}", tier: {tier},
      capabilities: [tools, vision, json_schema, logprobs], window_tokens: 100000, price: {{input: 0.1, output: 0.4}}}}
"""
REST = "local_model: {enabled: false}\nadmin_api: true\ntelemetry: {access_log: false}\n"
RULES = """\
data: {store_prompts: true}
passthrough: [audio, images, moderations, rerank]
"""
BACKENDS = tuple(
    (f"{name}{n}", kind) for n in ("", 2, 3, 4) for name, kind in (("small", "openai"), ("claude", "anthropic"))
)
GOOD = "/v1/chat/completions"
SETTLED_S = 30
"""For the last rows to reach the ledger's file."""


_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ ].*\n)+.*")


@dataclass
class Stage:
    """A running gateway under attack. Everything in it may be used from several threads."""

    gateway: GatewayProcess
    provider: FuzzedProvider
    key: str
    statuses: Counter[int] = field(default_factory=Counter)
    paid: set[str] = field(default_factory=set)
    """Ids of inference requests that were answered with 200."""
    faults: list[str] = field(default_factory=list)
    """Requests that got 500, each with how to send it again."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self) -> Client:
        return Client(self.gateway.port, self.key)

    def saw(self, status: int, what: str = "") -> None:
        with self._lock:
            self.statuses[status] += 1
            if status == 500:
                self.faults.append(what)

    def answered(self, path: str, answer: Answer, what: str) -> None:
        """Count the answer to a request for `path`, which `what` describes."""
        self.saw(answer.status, f"{what}\n  {answer.body[:500]!r}")
        if answer.status == 200 and "x-thriftgate-cache" in answer.headers:
            with self._lock:
                self.paid.add(answer.headers["x-request-id"])

    def assert_serves(self) -> None:
        """A good request to an unharmed provider is answered."""
        client = self.client()
        share, self.provider.share = self.provider.share, 0.0
        try:
            for name, _ in BACKENDS:
                answer = client.ask("POST", GOOD, written({**HELLO, "model": name}), x_thriftgate_cache="bypass")
                if answer.status == 200:
                    return
        finally:
            client.close()
            self.provider.share = share
        raise AssertionError(f"a good request got {answer.status}: {answer.body[:500]!r}\n{self.gateway.log[-4000:]}")

    def assert_clean(self) -> None:
        """No traceback was logged, and each answered request is in the ledger exactly once."""
        assert not (logged := self.tracebacks()), f"{len(logged)} kinds of tracebacks:\n" + "\n".join(logged)[:20_000]
        wait_until(lambda: self.paid <= {request for request, _ in self._rows()}, SETTLED_S)
        rows = self._rows()
        twice = [request for (request, outcome), count in rows.items() if outcome == "ok" and count > 1]
        assert not twice, f"more than one row that says ok: {twice[:3]}"

    def tracebacks(self) -> list[str]:
        """The last lines of each kind of traceback in the log."""
        found = {each[-1]: each for each in map(str.splitlines, _TRACEBACK.findall(self.gateway.log))}
        return ["\n".join(lines[-9:]) for lines in found.values()]

    def _rows(self) -> Counter[tuple[str, str]]:
        """(request, outcome) → its rows. A stream that broke after its head is there as failed or interrupted."""
        with closing(sqlite3.connect(self.gateway.home / "data" / "ledger.sqlite", timeout=30)) as link:
            return Counter(link.execute("SELECT request_id, outcome FROM ledger WHERE kind = ''"))


@contextmanager
def open_stage(home: Path, workers: int = 1) -> Iterator[Stage]:
    """A started gateway with two teams' keys and an openai and an anthropic backend, each four times."""
    port = free_port()
    config = "backends:\n" + "".join(
        BACKEND.format(name=name, kind=kind, port=port, tier="small" if kind == "openai" else "large")
        for name, kind in BACKENDS
    )
    with Running(port) as provider, GatewayProcess(home, config + REST, {"one": RULES}, workers=workers) as gateway:
        scopes = [word for scope in ("inference", "usage", "admin") for word in ("--scope", scope)]
        key = str(gateway.json("keys", "create", "--team", "one", *scopes)["key"])
        found = Stage(gateway, provider, key)
        client = found.client()
        wait_until(lambda: client.ask("GET", "/v1/models").status == 200)  # it learns of a new key within a second
        client.close()
        yield found


def resident_bytes(gateway: GatewayProcess) -> int:
    """Resident memory of all processes of the gateway."""
    tree, found = {gateway.facts["pid"]}, 0
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in tree or int(folder.name) in tree:
                tree.add(int(folder.name))
                found += int((folder / "statm").read_text().split()[1]) * resource.getpagesize()
    return found
