from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.state.redis import own_socket
from gateway.state.redis.address import Address, parse
from gateway.state.redis.embedded import EmbeddedServer, EmbeddedServerError

DEEP = "x" * 110


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory, which is everybody's; its own path is short."""
    with tempfile.TemporaryDirectory(prefix="tg-") as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_a_short_path_stays_and_a_long_one_gets_a_folder_of_the_user(shared: Path, tmp_path: Path) -> None:
    assert own_socket.short(Path("/data/valkey.sock")) == Path("/data/valkey.sock")
    found = own_socket.short(tmp_path / DEEP / "valkey.sock")
    assert found.parent.parent == shared
    assert len(str(found)) < 100
    assert parse(own_socket.url(tmp_path / DEEP / "valkey.sock")) == Address("unix", path=str(found), own=True)


def test_the_folder_is_made_for_this_user_alone_and_taken_again(shared: Path) -> None:
    for _ in range(2):
        own_socket.make_private_folder(shared / "mine")
        assert (shared / "mine").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["open", "link", "file", "foreign"])
def test_a_folder_that_somebody_else_may_have_put_there_is_refused(shared: Path, tmp_path: Path, kind: str) -> None:
    directory = tmp_path / DEEP / "valkey"
    folder = own_socket.short(directory / "valkey.sock").parent
    if kind == "link":
        (shared / "theirs").mkdir(mode=0o700)
        folder.symlink_to(shared / "theirs")
    elif kind == "file":
        folder.touch(mode=0o600)
    else:
        folder.mkdir(mode=0o700)
        folder.chmod(0o777 if kind == "open" else 0o700)
    if kind == "foreign":
        if os.geteuid():
            pytest.skip("only root can give a folder to another user")
        os.chown(folder, 65534, 65534)
    server = EmbeddedServer(directory)
    with pytest.raises(EmbeddedServerError, match=re.escape(str(folder)) + ".*remove it.*shorter --data-dir"):
        server.start()
    assert not server.alive()
    assert list(shared.rglob("*.sock")) == []


def test_a_server_of_this_user_is_accepted_and_no_other(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(shared / "listening")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(path)
        listener.listen()
        client.connect(path)
        own_socket.check_peer(client, path)
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        with pytest.raises(own_socket.ForeignSocket, match="not as the gateway's 4711"):
            own_socket.check_peer(client, path)
