"""Small filesystems to fill, stall and kill. They need root, and loop devices for all but the filling."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

SIZE_MB = 64
_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
_NO_FLUSH = 2


def run(*words: str) -> None:
    """Raises CalledProcessError, OSError when there is no such program."""
    subprocess.run(words, check=True, capture_output=True, timeout=30)


class Filesystem:
    """Mounted at `folder`, which is made anew for it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """To the last byte, as far as the filesystem tells."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (2**20, 4096, 512, 1):
                while True:
                    try:
                        file.write(b"\0" * size)
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
            with suppress(OSError):
                os.fsync(file.fileno())

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        with suppress(subprocess.CalledProcessError):
            while True:  # whatever was mounted above each other
                run("umount", "-l", str(self.folder))
        with suppress(OSError):
            self.folder.rmdir()


class Tmpfs(Filesystem):
    """`inside` belongs to `user`. Raises CalledProcessError where mounting is not allowed."""

    def __init__(self, folder: Path, size_mb: int, user: str | None = None) -> None:
        super().__init__(folder)
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=755", "tmpfs", str(folder))
        folder.parent.chmod(folder.parent.stat().st_mode | 0o011)
        self.inside = folder / "inside"
        self.inside.mkdir(mode=0o700)
        if user:
            run("chown", user, str(self.inside))


class Ext4(Filesystem):
    """On a loop device. Raises CalledProcessError or OSError where that is not allowed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        handle, name = tempfile.mkstemp(prefix="tg-matrix-disk-")
        os.truncate(handle, SIZE_MB * 2**20)
        os.close(handle)
        self._image = Path(name)
        self._stalling: threading.Thread | None = None
        self._stalled = threading.Event()
        try:
            run("mkfs.ext4", "-q", "-m", "0", str(self._image))
            self._mount()
        except (OSError, subprocess.CalledProcessError):
            self._image.unlink()
            raise

    def _mount(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self.folder))

    def strike(self, fault: str) -> None:
        match fault:
            case "killed":
                self._kill()
            case "frozen":
                run("fsfreeze", "-f", str(self.folder))
            case "slow":
                self._stalled.set()
                self._stalling = threading.Thread(target=self._stall)
                self._stalling.start()
            case "full":
                self.fill()

    def mend(self, fault: str) -> None:
        match fault:
            case "killed":
                self._replace()
            case "frozen":
                run("fsfreeze", "-u", str(self.folder))
            case "slow":
                self._stalled.clear()
                assert self._stalling
                self._stalling.join()
            case "full":
                self.empty()

    def _kill(self) -> None:
        """Every access fails from now on; nothing that was not flushed is kept."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, array.array("I", [_NO_FLUSH]))
        finally:
            os.close(folder)

    def _replace(self) -> None:
        """By a copy, mounted above: the old one lives on for as long as anybody has a file of it open."""
        copy = self._image.with_suffix(".copy")
        shutil.copyfile(self._image, copy)
        self._image.unlink()
        self._image = copy
        self._mount()

    def _stall(self) -> None:
        """Every write waits up to a third of a second."""
        while self._stalled.is_set():
            run("fsfreeze", "-f", str(self.folder))
            time.sleep(0.3)
            run("fsfreeze", "-u", str(self.folder))
            time.sleep(0.3)

    def unmount(self) -> None:
        if self._stalled.is_set():
            self.mend("slow")
        with suppress(subprocess.CalledProcessError):
            run("fsfreeze", "-u", str(self.folder))
        super().unmount()
        self._image.unlink(missing_ok=True)
