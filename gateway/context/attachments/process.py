"""Starts the measuring process on first use, and kills it at its deadline."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from gateway.domain.attachment import Attachment, Measured

log = logging.getLogger(__name__)

DEADLINE_S = 2.0
"""Maximum seconds for measuring all attachments of one request together. The wait for other requests is included."""
MOST_BYTES = 48 * 2**20
"""Maximum bytes of content that is opened. Anthropic accepts requests of up to 32 MB, and OpenAI of up to 50 MB."""
_PROGRAM = str(Path(__file__).with_name("measuring.py"))
_ANSWER = 128
"""Maximum bytes of an answer line."""


class MeasuringProcess:
    """One process that measures the attachments of all requests of a worker. The memory and the time of the process are
    limited, so a hostile file does little harm."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self.deadline_s = deadline_s
        self._turn = asyncio.Lock()
        """Held by the request that uses a thread. With this lock, waiting requests occupy no threads."""
        self._using = threading.Lock()
        """Held while the process is used. If a request is cancelled, its thread continues and still holds this lock."""
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[[subprocess.Popen[bytes], socket.socket], MeasuringProcess] | None = None

    async def measure(self, attachments: Sequence[Attachment]) -> None:
        """Set `measured` of each attachment that can be opened in time."""
        jobs = [(each, form) for each in attachments if (form := _form(each)) and each.measured is None]
        if not jobs:
            return
        ends = time.monotonic() + self.deadline_s
        try:
            async with asyncio.timeout(self.deadline_s):
                async with self._turn:
                    await asyncio.to_thread(self._measure_all, jobs, ends)
        except TimeoutError:
            log.warning("attachments were not opened within %g s: their size is counted", self.deadline_s)

    def _measure_all(self, jobs: Sequence[tuple[Attachment, str]], ends: float) -> None:
        for attachment, form in jobs:
            left_s = ends - time.monotonic()
            if left_s <= 0 or not self._using.acquire(timeout=left_s):
                return
            try:
                attachment.measured = self._measure(attachment, form, ends)
            except (OSError, ValueError) as error:
                log.warning("a %s of %d bytes could not be opened: %r", form, attachment.size, error)
                self._kill()
            finally:
                self._using.release()

    def _measure(self, attachment: Attachment, form: str, ends: float) -> Measured | None:
        """The measurement of an attachment; None if its content cannot be read.

        `form`: the format. `ends`: time by which the measurement must be finished. Raises OSError if the process
        ends or takes too long.
        """
        assert attachment.data is not None
        content = attachment.data[attachment.start :].encode("ascii", "replace")
        if self._process is not None and self._process.poll() is not None:  # ended after a long idle time
            self._kill()
        connection = self._connection or self._start()
        left_s = max(ends - time.monotonic(), 0.001)
        connection.settimeout(left_s)
        connection.sendall(b"%b %d %.3f\n" % (form.encode(), len(content), left_s))
        connection.sendall(content)
        answer = b""
        while not answer.endswith(b"\n"):
            connection.settimeout(max(ends - time.monotonic(), 0.001))
            more = connection.recv(_ANSWER)
            if not more:
                raise ConnectionResetError("the measuring process ended")
            answer += more
        if answer == b"-\n":
            return None
        pages, text_bytes, seconds = answer.split()
        return Measured(int(pages), int(text_bytes), float(seconds))

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603 (our own interpreter and program)
                [sys.executable, "-I", _PROGRAM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        self._connection, self._process = ours, process
        self._end = weakref.finalize(self, _end, process, ours)
        return ours

    def _kill(self) -> None:
        if self._end is not None:
            self._end()
        self._connection = self._process = self._end = None

    def close(self) -> None:
        """End the process. If another attachment arrives, a new process is started."""
        with self._using:
            self._kill()


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    process.kill()
    process.wait()


def _form(attachment: Attachment) -> str:
    """The name of the format in the job for the process. Empty if the attachment must not be opened."""
    if attachment.data is None or attachment.plain or not 0 < attachment.size <= MOST_BYTES:
        return ""
    if attachment.kind == "audio":
        return "audio"
    return attachment.format if attachment.format in ("pdf", "office") else ""
