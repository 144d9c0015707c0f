"""The embedded server's unix socket, in a private folder, with its owner checked."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import tempfile
from pathlib import Path

_PATH_BYTES = 100
"""The kernel's limit is 108 on Linux and 104 on macOS."""
_CREDENTIALS = struct.Struct("iII")
"""`struct ucred`: process, user and group of the listening process."""
QUERY = "peer=own"
"""Of a state URL: only a server of this user's is meant."""


class ForeignSocket(OSError):
    """A folder or server belongs to another user; the message names it and says what to do."""


def short(path: Path) -> Path:
    """`path`, or one in a folder of this user's in the temporary directory where the kernel would refuse its length."""
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"thriftgate-{os.geteuid()}-{digest}" / "valkey.sock"


def url(path: Path) -> str:
    """Of the embedded server whose socket was meant to be at `path`."""
    return f"unix://{short(path)}?{QUERY}"


def own_folder(folder: Path) -> None:
    """Make `folder`, mode 0700. Raises ForeignSocket where something else is there: in a shared directory anybody may
    have put it there before."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else f"mode {stat.S_IMODE(found.st_mode):04o}"
        raise ForeignSocket(
            f"{folder}: the state socket needs a folder of its own, of user {os.geteuid()} and mode 0700, and what is "
            f"there is of user {found.st_uid}, {what}; remove it, set TMPDIR, or give a shorter --data-dir"
        ) from None


def check_peer(connected: socket.socket, path: str) -> None:
    """Raises ForeignSocket where another user listens at the socket's other end, if the system tells that."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    _, user, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.geteuid():
        raise ForeignSocket(f"{path}: user {user} listens there, not the gateway's {os.geteuid()}; nothing was sent")
