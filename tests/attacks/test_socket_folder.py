"""Another user of the machine, who waits in the temporary directory for a gateway whose data path is too long."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import StateUnavailable
from gateway.state.redis import own_socket
from gateway.state.redis.connection import State
from tests.e2e.gateway_process import GatewayProcess

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start

NOBODY = 65534
CONFIG = "backends: [{name: small, kind: simulated, model: small, tier: small}]\nlocal_model: {enabled: false}\n"
LISTENER = """\
import os, socket, sys
os.setgid(65534); os.setuid(65534)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1]); server.listen(); os.chmod(sys.argv[1], 0o777)
print("listening", flush=True)
while True:
    peer, _ = server.accept()
    peer.settimeout(2)
    try:
        while data := peer.recv(4096):
            print(repr(data), flush=True)
            peer.sendall(b"+PONG\\r\\n")
    except OSError:
        pass
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory, which is everybody's; `tmp_path` is elsewhere."""
    with tempfile.TemporaryDirectory(prefix="tg-") as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def deep(tmp_path: Path) -> GatewayProcess:
    return GatewayProcess(tmp_path / ("x" * 110) / "home", CONFIG)


def test_a_folder_that_waits_for_the_socket_is_refused_and_told(shared: Path, tmp_path: Path) -> None:
    gateway = deep(tmp_path)
    folder = own_socket.short(gateway.home / "data" / "valkey" / "valkey.sock").parent
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(RuntimeError, match="did not become ready"):
        gateway.start()
    assert str(folder) in gateway.log
    assert "shorter --data-dir" in gateway.log
    assert list(folder.iterdir()) == []


def test_a_long_data_path_works_in_a_folder_of_the_gateways_user_alone(shared: Path, tmp_path: Path) -> None:
    with deep(tmp_path) as gateway:
        folders = [path for path in shared.iterdir() if path.name.startswith("thriftgate-")]
        assert folders
        assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
        assert gateway.run("cache", "stats", "--json").stdout.strip() == "[]"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_a_server_of_another_user_is_told_nothing(shared: Path, tmp_path: Path) -> None:
    path = shared / "valkey.sock"
    listener = subprocess.Popen(
        [sys.executable, "-I", "-c", LISTENER, str(path)], stdout=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"

        async def ask(url: str) -> None:
            state = State(url, timeout_s=0.5)
            await state.open()
            try:
                await state.call("GET", "tg:epoch")
            finally:
                await state.aclose()

        with pytest.raises(StateUnavailable, match=f"the server runs as user {NOBODY}"):
            asyncio.run(ask(f"unix://{path}?{own_socket.QUERY}"))
    finally:
        listener.terminate()
        said, _ = listener.communicate(timeout=10)
    assert said == ""
