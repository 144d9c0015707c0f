"""What an idle gateway has in memory: nothing that only a policy, a command or an answer could need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from gateway.policy import keys
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database

pytestmark = pytest.mark.timeout(120)  # processes start, on a machine that is busy

HEAVY = {
    *("numpy", "faiss", "onnxruntime", "tokenizers", "tiktoken", "sentence_transformers", "torch"),
    *("redis", "aiohttp", "litellm", "opentelemetry", "prometheus_client", "alembic", "rich"),
    *("brotli", "zstandard"),
}

WORKER = """
import asyncio, sys
from pathlib import Path
from gateway.app import Application
from gateway.wiring import Worker
from gateway.settings.gateway import load_settings
from tests.fakes.client import Client, Lifespan

async def main():
    home = Path(sys.argv[1])
    app = Application(Worker(load_settings(home / "gateway.yaml", home / "data", [home / "policies"]), sys.argv[2]))
    async with Lifespan(app):
        while (await Client(app, "/health/ready", method="GET").run()).status != 200:
            await asyncio.sleep(0.02)
        while not set(sys.argv[3:]) <= set(sys.modules):
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
        print(*{name.partition(".")[0] for name in sys.modules})

asyncio.run(main())
"""
SUPERVISOR = """
import os, signal, sys, threading
from pathlib import Path
from gateway.settings.gateway import load_settings
from gateway.supervisor.supervisor import Supervisor

def tell():
    print(*{name.partition(".")[0] for name in sys.modules}, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

home = Path(sys.argv[1])
settings = load_settings(home / "gateway.yaml", home / "data", [home / "policies"])
Supervisor(settings, config=home / "gateway.yaml", port=0, on_ready=threading.Timer(1.0, tell).start).run()
"""
AFTER_FORK = """
import gc, importlib, sys
gc.disable()
import gateway.supervisor.supervisor
from gateway.supervisor.fork_server import IMPORTED
for module in IMPORTED:
    importlib.import_module(module)
print(*sys.modules)
"""
OURS = ("gateway", "sqlalchemy", "sqlite3", "uvicorn", "uvloop")
ALL_MODULES = 'print(*{name.partition(".")[0] for name in sys.modules}'
BACKEND = "{name: NAME, kind: openai, base_url: 'http://127.0.0.1:9/v1', model: m, price: {input: 1, output: 2}}"


def home_of(folder: Path, backends: int = 1) -> Path:
    """A gateway with a budget, exact cache and limits, and a team that has a key."""
    listed = "\n".join("  - " + BACKEND.replace("NAME", f"backend-{number}") for number in range(backends))
    (folder / "gateway.yaml").write_text(f"backends:\n{listed}\n")
    (folder / "policies").mkdir()
    (folder / "policies/default.yaml").write_text(
        "team: default\ncache: {semantic: {enabled: false}}\nbudget: {limit_usd: 5}\n"
    )
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    database.upgrade()
    keys.create(database, "search")
    database.close()
    return folder


def loaded(script: str, *arguments: str | Path) -> set[str]:
    """Top-level modules of a process that idles for a second after it was ready. A worker is ready when it has loaded
    the modules that follow its two arguments."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_an_idle_worker_has_loaded_nothing_heavy(tmp_path: Path, state_url: str) -> None:
    assert loaded(WORKER, home_of(tmp_path), state_url) & HEAVY == set()


@pytest.mark.parametrize("script", [WORKER, SUPERVISOR])
def test_an_idle_process_has_imported_next_to_nothing_since_the_fork(
    tmp_path: Path, state_url: str, script: str
) -> None:
    """Each of these imports would write into memory pages that supervisor and worker share."""
    shared = set(subprocess.check_output([sys.executable, "-c", AFTER_FORK], text=True).split())
    assert not [name for name in shared if name.startswith("sqlalchemy.dialects.postgresql")]
    whole = script.replace(ALL_MODULES, "print(*sys.modules")
    assert whole != script
    late = {name for name in loaded(whole, home_of(tmp_path), state_url) - shared if name.startswith(OURS)}
    assert late == set()


def test_an_idle_supervisor_has_loaded_nothing_heavy(tmp_path: Path) -> None:
    assert loaded(SUPERVISOR, home_of(tmp_path)) & HEAVY == set()


def test_a_choice_between_backends_loads_the_classifier_ahead_of_the_first_request(
    tmp_path: Path, state_url: str
) -> None:
    assert loaded(WORKER, home_of(tmp_path, backends=2), state_url, "numpy") & HEAVY == {"numpy"}


@pytest.mark.heavy
def test_a_team_that_wants_paraphrases_has_the_embedder_loaded(tmp_path: Path, state_url: str) -> None:
    home = home_of(tmp_path)
    (home / "policies/search.yaml").write_text("team: search\n")
    embedder = ("onnxruntime", "tokenizers")
    assert set(embedder) <= loaded(WORKER, home, state_url, *embedder)


def test_the_list_names_modules_that_there_are() -> None:
    extras = {"torch", "sentence_transformers", "litellm"}
    code = f"import importlib.util as u; print([name for name in {HEAVY - extras!r} if u.find_spec(name) is None])"
    assert orjson.loads(subprocess.check_output([sys.executable, "-c", code]).replace(b"'", b'"')) == []
