"""The embedded server's unix socket. The socket is in a private folder, and the owner of the server is checked."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import tempfile
from pathlib import Path

_PATH_BYTES = 100
"""Maximum bytes of a socket's path. The kernel's limit is 108 bytes on Linux and 104 bytes on macOS."""
_CREDENTIALS = struct.Struct("iII")
"""The format of `struct ucred`: process, user and group of the process that listens on a socket."""
QUERY = "peer=own"
"""Query string of a state URL. It means that the server must run as the same user as the gateway."""


class ForeignSocket(OSError):
    """A folder or server belongs to another user. The message names the folder or server, and the remedy."""


def short(path: Path) -> Path:
    """`path` itself, or a shorter path in a private temporary folder if `path` is too long for a unix socket."""
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"thriftgate-{os.geteuid()}-{digest}" / "valkey.sock"


def url(path: Path) -> str:
    """The URL of the embedded server whose socket is configured at `path`."""
    return f"unix://{short(path)}?{QUERY}"


def make_private_folder(folder: Path) -> None:
    """Create `folder` with mode 0700, or use an existing one of this user. Raises ForeignSocket if something else
    has this path.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else f"mode {stat.S_IMODE(found.st_mode):04o}"
        raise ForeignSocket(
            f"{folder}: the state socket needs a folder of user {os.geteuid()} with mode 0700, but this path "
            f"belongs to user {found.st_uid}, {what}; remove it, set TMPDIR, or give a shorter --data-dir"
        ) from None


def check_peer(connected: socket.socket, path: str) -> None:
    """Raise ForeignSocket if the server at the other end of `connected` belongs to another user. Does nothing on
    systems that do not report the user."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    _, user, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.geteuid():
        raise ForeignSocket(
            f"{path}: the server runs as user {user}, not as the gateway's {os.geteuid()}; nothing was sent"
        )
