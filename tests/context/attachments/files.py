"""Small real documents and recordings, and requests that carry them in each dialect's words."""

from __future__ import annotations

import io
import wave
import zipfile
import zlib
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, NameObject

from gateway.domain.request import CompletionRequest
from tests.support.requests import chat_request, messages_request, responses_request, user

ASKED = "What does it say?"


def pdf(pages: int, text: bytes = b"") -> bytes:
    """`text` is shown on each page."""
    writer = PdfWriter()
    for _ in range(pages):
        page = writer.add_blank_page(595, 842)
        if text:
            stream = DecodedStreamObject()
            stream.set_data(b"BT /F1 12 Tf (" + text + b") Tj ET")
            page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def raw_pdf(*objects: bytes) -> bytes:
    """Objects 1, 2, … as they are given; object 1 is the catalogue."""
    parts, places = [b"%PDF-1.7\n"], []
    for number, body in enumerate(objects, 1):
        places.append(sum(map(len, parts)))
        parts.append(b"%d 0 obj\n%b\nendobj\n" % (number, body))
    start = sum(map(len, parts))
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return b"".join([*parts, head, table, end])


CATALOGUE = b"<< /Type /Catalog /Pages 2 0 R >>"


def stream(data: bytes) -> bytes:
    packed = zlib.compress(data, 9)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(packed), packed)


def wav(seconds: float, rate: int = 16_000) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * int(rate * seconds)))
    return written.getvalue()


def mp3(frames: int) -> bytes:
    """MPEG 1 layer III, 128 kbit/s, 44.1 kHz: 417 bytes and 1,152 samples a frame."""
    return (b"\xff\xfb\x90\x00" + bytes(413)) * frames


def docx(text: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f"<w:document><w:t>{text}</w:t></w:document>")
        archive.writestr("word/media/picture.png", bytes(100_000))
    return written.getvalue()


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def data_url(data: bytes, media: str = "application/pdf") -> str:
    return f"data:{media};base64,{base64(data)}"


def chat(*parts: Mapping[str, Any], **fields: Any) -> CompletionRequest:
    return chat_request([{"type": "text", "text": ASKED}, *parts], **{"model": "small", **fields})


def responses(*parts: Mapping[str, Any], items: tuple[Mapping[str, Any], ...] = ()) -> CompletionRequest:
    return responses_request([*items, user([{"type": "input_text", "text": ASKED}, *parts])], model="small")


def messages(*blocks: Mapping[str, Any]) -> CompletionRequest:
    return messages_request([{"type": "text", "text": ASKED}, *blocks], model="small")


def file_part(data: bytes, name: str = "a.pdf", media: str = "application/pdf") -> dict[str, Any]:
    """OpenAI chat's."""
    return {"type": "file", "file": {"filename": name, "file_data": data_url(data, media)}}


def document(data: bytes) -> dict[str, Any]:
    """Anthropic's."""
    return {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": base64(data)},
    }
