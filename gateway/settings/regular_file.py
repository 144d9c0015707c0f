"""Reads regular files only. Pipes, devices, and links that lead out of the folder are refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class Unreadable(ValueError):
    """Raised if a file is not read. The message names the reason and the remedy."""


def read_text(path: Path, within: Path | None, most_bytes: int) -> str:
    """Read the text of the file `path`. `within`: folder in which `path` must be a regular file, after all links are
    followed. Raises Unreadable, OSError."""
    place = os.fspath(path)
    if within is not None:
        place = os.path.realpath(path)
        if not Path(place).is_relative_to(os.path.realpath(within)):
            raise Unreadable("is a link to something outside of its folder; put the file itself there")
        if not stat.S_ISREG(os.lstat(place).st_mode):  # merely opening a device may have an effect
            raise Unreadable("is not a regular file; put a file there")
    # Without O_NONBLOCK, opening a pipe that has replaced the file meanwhile would block the thread for ever.
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK | os.O_NOFOLLOW if within is not None else 0)
    with os.fdopen(os.open(place, flags), "rb") as file:
        if within is not None and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable("is not a regular file; put a file there")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise Unreadable(f"is larger than {most_bytes} bytes; shorten it")
    return content.decode("utf-8")
