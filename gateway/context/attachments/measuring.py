"""The program that opens documents and recordings. It runs in a separate process, because a hostile file may crash it.

The program runs as a script and imports nothing of the gateway. Its standard input is one end of a socket. A job is a
line `FORMAT LENGTH SECONDS`, followed by LENGTH bytes of base64. The answer is a line `PAGES TEXT_BYTES SECONDS`, or
`-` if the content cannot be read. The program ends when no job has arrived for some time, or when the socket closes.
SIGALRM ends the program if a job takes longer than its SECONDS.
"""

from __future__ import annotations

import io
import re
import resource
import signal
import socket
import sys
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

MEMORY_BYTES = 1 << 30
"""Maximum size of the address space in bytes. If a file needs more, allocations fail, and the file counts as
unreadable."""
IDLE_S = 60.0
MOST_PAGES = 5_000
"""Maximum number of pages that are read. No vendor accepts so many pages. For a longer document, the number of pages
that the document declares is used."""
MOST_FORMS = 64
"""Maximum number of drawings inside the drawing of one page that are read."""
_SHOWN = re.compile(rb"\((?:[^()\\]|\\.)*\)|<[0-9A-Fa-f\s]+>", re.DOTALL)
"""Matches text that a page shows: literal or hexadecimal strings in its content stream."""
_DECLARED = re.compile(rb"/Count\s+(\d{1,9})\b")
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_WORDS = re.compile(r"(?:word|ppt|xl)/.*\.xml$|content\.xml$")
"""Matches the files in an Office archive that contain its text."""


def pdf(data: bytes) -> tuple[int, int, float]:
    """Count the pages of a PDF and the bytes of text on them. Returns (pages, bytes of text, 0 seconds of sound).

    The number of pages is the number that the page tree declares, or the number of pages that were found, if this is
    larger. A damaged page tree cannot be read to its end. Then the whole file is searched for page objects and for
    declared numbers of pages. The largest of these numbers also counts as declared.
    """
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    declared = found = text = 0
    whole = False
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted:
            reader.decrypt("")
        root: Any = reader.trailer["/Root"].get_object()
        top = root["/Pages"].get_object()
        declared = int(top.get("/Count", 0))
        for page in _leaves(top):
            found += 1
            text += _shown(page)
        whole = found > 0
    except (PyPdfError, ValueError, TypeError, KeyError, AttributeError, RecursionError, NotImplementedError):
        pass  # count the pages that were found before the error
    if not whole:
        declared = max(declared, len(_PAGE.findall(data)), *map(int, _DECLARED.findall(data)))
    pages = max(declared, found)
    if not pages:
        raise ValueError("no page was found")
    return pages, text, 0.0


def _leaves(top: Any) -> Iterator[Any]:
    """Yield the pages of the tree below `top`. A page that is referenced twice is yielded twice. A node that contains
    itself is skipped."""
    waiting: list[tuple[Any, frozenset[int]]] = [(top, frozenset())]
    seen = 0
    while waiting and seen < MOST_PAGES:
        node, above = waiting.pop()
        kids = node.get("/Kids")
        if kids is None:
            seen += 1
            yield node
            continue
        inside = above | {id(node)}
        for kid in reversed(kids.get_object()[:MOST_PAGES]):
            below = kid.get_object()
            if hasattr(below, "get") and id(below) not in inside and len(waiting) <= MOST_PAGES:
                waiting.append((below, inside))


def _shown(page: Any) -> int:
    """Number of bytes of text in the content of a page, and in the drawings that it may use."""
    held = page.get("/Contents")
    contents = held.get_object() if held is not None else []
    streams = list(contents) if isinstance(contents, list) else [contents]
    drawings = [page]
    for drawing in drawings:
        resources = drawing.get("/Resources")
        objects = resources.get_object().get("/XObject") if resources is not None else None
        for other in objects.get_object().values() if objects is not None else ():
            form = other.get_object()
            if form.get("/Subtype") == "/Form" and len(drawings) <= MOST_FORMS:
                drawings.append(form)
                streams.append(form)
    return sum(_text_bytes(stream.get_object().get_data()) for stream in streams)


def _text_bytes(content: bytes) -> int:
    return sum(len(shown) // (1 if shown[:1] == b"(" else 2) for shown in _SHOWN.findall(content))


def office(data: bytes) -> tuple[int, int, float]:
    """Return (0 pages, bytes of XML, 0 seconds of sound) for an Office file. Only files of the archive that contain
    text are counted, by their names in the archive's directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return 0, sum(each.file_size for each in archive.infolist() if _WORDS.search(each.filename)), 0.0


def audio(data: bytes) -> tuple[int, int, float]:
    from tinytag import TinyTag

    seconds = TinyTag.get(file_obj=io.BytesIO(data), tags=False).duration
    if not seconds or not 0 < seconds < 1e9:
        raise ValueError("no length was found")
    return 0, 0, float(seconds)


JOBS = {"pdf": pdf, "office": office, "audio": audio}


def answer(form: str, given: bytes) -> bytes:
    """The answer line for one job. `form`: the format. `given`: the document or recording in base64."""
    try:
        pages, text, seconds = JOBS[form](b64decode(given))
    except Exception:
        return b"-\n"  # the library may raise any exception if the content cannot be read
    return f"{pages} {text} {seconds:.3f}\n".encode()


def serve(connection: socket.socket) -> None:
    """Process jobs until the socket is closed."""
    connection.settimeout(IDLE_S)
    with connection.makefile("rb") as asked:
        while line := asked.readline():
            form, length, limit_s = line.decode().split()
            signal.setitimer(signal.ITIMER_REAL, float(limit_s))
            connection.sendall(answer(form, asked.read(int(length))))
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        serve(socket.socket(fileno=sys.stdin.fileno()))
    except (OSError, ValueError):
        sys.exit(0)
