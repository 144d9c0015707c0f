"""The measuring process against honest and hostile files."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator

import pytest

from gateway.context.attachments import measuring
from gateway.context.attachments.process import MOST_BYTES, MeasuringProcess
from gateway.domain.attachment import Attachment, AttachmentKind, Measured
from tests.context.attachments.files import CATALOGUE, base64, docx, mp3, pdf, raw_pdf, stream, wav

GENEROUS_S = 15.0


@pytest.fixture
def process() -> Iterator[MeasuringProcess]:
    opened = MeasuringProcess(GENEROUS_S)
    yield opened
    opened.close()


def attached(data: bytes, form: str = "pdf", kind: AttachmentKind = "document") -> Attachment:
    return Attachment(0, kind, form, base64(data))


async def measured(process: MeasuringProcess, data: bytes, form: str = "pdf") -> Measured | None:
    each = attached(data, form, "document" if form in ("pdf", "office") else "audio")
    await process.measure([each])
    return each.measured


async def test_honest_files_are_counted(process: MeasuringProcess) -> None:
    assert await measured(process, pdf(7)) == Measured(pages=7)
    assert await measured(process, pdf(2, b"x" * 500)) == Measured(pages=2, text_bytes=2 * 502)
    assert await measured(process, wav(2.5), "wav") == Measured(seconds=2.5)
    sound = await measured(process, mp3(100), "mp3")
    assert sound is not None
    assert sound.seconds == pytest.approx(100 * 1152 / 44100, rel=0.05)
    words = await measured(process, docx("parcel " * 1000), "office")
    assert words is not None
    assert 7000 < words.text_bytes < 7100  # the picture is no text


TREE = b"<< /Type /Pages /Kids [3 0 R] /Count %d >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>"
HOSTILE: dict[str, tuple[bytes, int | None]] = {
    "a million declared pages": (raw_pdf(CATALOGUE, TREE % 10**6, PAGE, stream(b"")), 10**6),
    "a page that is referred to a thousand times": (
        raw_pdf(CATALOGUE, b"<< /Type /Pages /Kids [%b] /Count 1 >>" % (b"3 0 R " * 1000), PAGE, stream(b"")),
        1000,
    ),
    "a tree that holds itself": (raw_pdf(CATALOGUE, b"<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 1 >>", PAGE), 1),
    "a tree of nothing but itself": (raw_pdf(CATALOGUE, b"<< /Type /Pages /Kids [2 0 R] /Count 2 >>"), 2),
    "a stream that unpacks to a gigabyte": (
        raw_pdf(
            CATALOGUE,
            TREE % 1,
            PAGE,
            b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%b\nendstream"
            % (len(twice := zlib.compress(zlib.compress(bytes(2**27), 9), 9)), twice),
        ),
        1,
    ),
    "half a file": (pdf(40)[: len(pdf(40)) // 2], 40),
    "no page at all": (raw_pdf(CATALOGUE), None),
    "noise": (b"%PDF-1.7" + bytes(range(256)) * 50, None),
    "nothing": (b"%PDF-", None),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_document_is_counted_at_its_worst_or_not_at_all(process: MeasuringProcess, name: str) -> None:
    data, pages = HOSTILE[name]
    found = await measured(process, data)
    assert (found and found.pages) == pages
    assert await measured(process, pdf(3)) == Measured(pages=3)  # the next one is served


async def test_an_encrypted_document_without_a_password_is_counted(process: MeasuringProcess) -> None:
    import io

    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(5))))
    writer.encrypt("secret", algorithm="RC4-128")
    written = io.BytesIO()
    writer.write(written)
    assert await measured(process, written.getvalue()) == Measured(pages=5)


async def test_garbage_base64_and_wrong_sound_are_not_counted(process: MeasuringProcess) -> None:
    for text in ("!!!not base64!!!", "é" * 10, "JVBERi0"):
        each = Attachment(0, "document", "pdf", text)
        await process.measure([each])
        assert each.measured is None
    assert await measured(process, b"RIFF" + bytes(100), "wav") is None
    assert await measured(process, bytes(1000), "mp3") is None


async def test_too_large_or_elsewhere_starts_no_process() -> None:
    process = MeasuringProcess()
    large = Attachment(0, "document", "pdf", "A" * (MOST_BYTES // 3 * 4 + 8))
    await process.measure([large, Attachment(0, "document"), Attachment(0, "audio"), Attachment(0, "image", "image")])
    assert large.measured is None
    assert process._connection is None


async def test_thirty_megabytes_of_noise_are_not_counted(process: MeasuringProcess) -> None:
    assert await measured(process, b"%PDF-1.7\n" + b"1 0 obj <<" * 3_000_000) is None
    assert await measured(process, pdf(3)) == Measured(pages=3)


async def test_what_takes_too_long_is_left_uncounted_and_the_next_is_served() -> None:
    process = MeasuringProcess(deadline_s=0.001)  # less than a process needs to start
    slow = attached(pdf(3))
    await process.measure([slow])
    assert slow.measured is None
    process.deadline_s = GENEROUS_S
    again = attached(pdf(3))
    await process.measure([again])
    assert again.measured == Measured(pages=3)
    process.close()


async def test_a_process_that_died_is_started_again(process: MeasuringProcess) -> None:
    assert await measured(process, pdf(1)) == Measured(pages=1)
    assert process._connection is not None
    process._connection.shutdown(2)
    lost = await measured(process, pdf(2))
    found = await measured(process, pdf(2))
    assert lost in (None, Measured(pages=2))  # the end of the process may be noticed before or at the question
    assert found == Measured(pages=2)


async def test_the_first_document_after_an_idle_minute_is_counted(process: MeasuringProcess) -> None:
    assert await measured(process, pdf(1)) == Measured(pages=1)
    ended = process._process
    assert ended is not None
    ended.kill()
    ended.wait()
    assert await measured(process, pdf(2)) == Measured(pages=2)


async def test_many_at_once_each_get_their_own_count(process: MeasuringProcess) -> None:
    files = [attached(pdf(pages)) for pages in range(1, 21)]
    await asyncio.gather(*(process.measure([file]) for file in files))
    assert [file.measured for file in files] == [Measured(pages=pages) for pages in range(1, 21)]


def test_a_cut_answer_is_no_answer() -> None:
    assert measuring.answer("pdf", b"") == b"-\n"
    assert measuring.answer("nothing we know", b"AAAA") == b"-\n"
