from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.context import measure
from gateway.context.attachments.find import find
from gateway.context.count import Counter
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.domain.request import CompletionRequest, Controls
from tests.context.attachments.files import (
    ASKED,
    base64,
    chat,
    data_url,
    document,
    docx,
    file_part,
    messages,
    mp3,
    pdf,
    responses,
    wav,
)

PDF, WAV = pdf(1), wav(1)
TEXT = b"parcel " * 100
RESULT = {"type": "function_call_output", "call_id": "c"}
ELSEWHERE = ("document", "", False)
CASES: list[tuple[str, CompletionRequest, list[tuple[str, str, bool]]]] = [
    ("chat, PDF", chat(file_part(PDF)), [("document", "pdf", True)]),
    (
        "chat, PDF without a data URL",
        chat({"type": "file", "file": {"file_data": base64(PDF)}}),
        [("document", "pdf", True)],
    ),
    ("chat, text called a PDF", chat(file_part(b"no PDF", "a.pdf", "")), [("document", "pdf", True)]),
    ("chat, PDF called a text", chat(file_part(PDF, "a.txt", "text/plain")), [("document", "pdf", True)]),
    ("chat, text", chat(file_part(TEXT, "a.md", "text/markdown")), [("document", "text", True)]),
    ("chat, Office", chat(file_part(docx("hi"), "a.docx", "application/zip")), [("document", "office", True)]),
    ("chat, file's id", chat({"type": "file", "file": {"file_id": "file-abc"}}), [("document", "", False)]),
    ("chat, file's URL", chat({"type": "file", "file": {"file_data": "https://a.b/c.pdf"}}), [("document", "", False)]),
    ("chat, empty file", chat({"type": "file", "file": {}}), [("document", "", False)]),
    ("chat, file that is no object", chat({"type": "file", "file": 7}), [("document", "", False)]),
    ("chat, image as file", chat(file_part(b"GIF89a", "a.gif", "image/gif")), [("image", "image", True)]),
    ("chat, document URL", chat({"type": "document_url", "document_url": "https://a.b/c"}), [("document", "", False)]),
    (
        "chat, WAV",
        chat({"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}}),
        [("audio", "wav", True)],
    ),
    (
        "chat, sound's URL",
        chat({"type": "audio_url", "audio_url": {"url": "https://a.b/c.mp3"}}),
        [("audio", "", False)],
    ),
    (
        "chat, sound inline",
        chat({"type": "audio_url", "audio_url": {"url": data_url(mp3(3), "audio/mpeg")}}),
        [("audio", "mpeg", True)],
    ),
    ("chat, sound as file", chat(file_part(WAV, "a.wav", "audio/wav")), [("audio", "wav", True)]),
    (
        "chat, video",
        chat({"type": "video_url", "video_url": {"url": "https://a.b/c.mp4"}}),
        [("image", "video", False)],
    ),
    ("chat, a text key beside a file", chat({**file_part(PDF), "text": ""}), [("document", "pdf", True)]),
    (
        "chat, inline and by id",
        chat({"type": "file", "file": {"file_data": data_url(PDF), "file_id": "f"}}),
        [ELSEWHERE],
    ),
    ("chat, two", chat(file_part(PDF), file_part(PDF)), [("document", "pdf", True)] * 2),
    ("responses, PDF", responses({"type": "input_file", "file_data": data_url(PDF)}), [("document", "pdf", True)]),
    ("responses, URL", responses({"type": "input_file", "file_url": "https://a.b/c.pdf"}), [("document", "", False)]),
    ("responses, id", responses({"type": "input_file", "file_id": "file-abc"}), [("document", "", False)]),
    (
        "responses, WAV",
        responses({"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}}),
        [("audio", "wav", True)],
    ),
    (
        "responses, sound in the part",
        responses({"type": "input_audio", "data": base64(WAV), "format": "wav"}),
        [("audio", "wav", True)],
    ),
    (
        "responses, tool result",
        responses(items=({**RESULT, "output": [{"type": "input_file", "file_data": data_url(PDF)}]},)),
        [("document", "pdf", True)],
    ),
    (
        "responses, screenshot",
        responses(
            items=(
                {
                    "type": "computer_call_output",
                    "call_id": "c",
                    "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"},
                },
            )
        ),
        [("image", "image", False)],
    ),
    (
        "responses, made image",
        responses(items=({"type": "image_generation_call", "id": "i", "result": "AAAA"},)),
        [("image", "image", False)],
    ),
    ("messages, PDF", messages(document(PDF)), [("document", "pdf", True)]),
    (
        "messages, URL",
        messages({"type": "document", "source": {"type": "url", "url": "https://a.b/c.pdf"}}),
        [("document", "", False)],
    ),
    (
        "messages, id",
        messages({"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
        [("document", "", False)],
    ),
    ("messages, upload", messages({"type": "container_upload", "file_id": "file_1"}), [("document", "", False)]),
    (
        "messages, tool result",
        messages({"type": "tool_result", "tool_use_id": "t", "content": [document(PDF)]}),
        [("document", "pdf", True)],
    ),
    (
        "messages, title",
        messages({**document(PDF), "title": "Parcels"}),
        [("document", "pdf", True), ("document", "text", True)],
    ),
    (
        "messages, blocks",
        messages(
            {
                "type": "document",
                "source": {
                    "type": "content",
                    "content": [{"type": "text", "text": "hi"}, {"type": "image", "source": {}}],
                },
            }
        ),
        [("image", "image", False), ("document", "text", True)],
    ),
]


@pytest.mark.parametrize(("request_", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_form_in_each_dialect_is_found(request_: CompletionRequest, wanted: list[tuple[str, str, bool]]) -> None:
    found = [(each.kind, each.format, each.data is not None) for each in find(request_)]
    assert found == wanted


@pytest.mark.parametrize(
    "request_",
    [
        chat(),
        chat({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}),
        responses({"type": "input_image", "image_url": "https://a.b/c.png"}),
        messages({"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}),
        messages({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}),
    ],
)
def test_text_and_images_are_left_to_the_parser(request_: CompletionRequest) -> None:
    assert not find(request_)
    assert not any(turn.files for turn in request_.turns)


def test_escaped_letters_hide_nothing() -> None:
    raw = chat(file_part(PDF)).raw.replace(b'"file"', rb'"\u0066ile"')
    assert b'"file"' not in raw
    (found,) = find(openai_chat.parse(raw, "req_1", Controls(), {}))
    assert found.format == "pdf"


def test_an_earlier_spoken_answer_is_a_recording() -> None:
    said: dict[str, Any] = {"role": "assistant", "audio": {"id": "audio_1"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}, said, {"role": "user", "content": "and?"}]}
    (found,) = find(openai_chat.parse(orjson.dumps(body), "req_1", Controls(), {}))
    assert (found.kind, found.turn) == ("audio", 1)


async def test_base64_is_not_counted_as_text(counter: Counter) -> None:
    alone = (await measure.sizes(chat(), counter, "o200k_base")).total
    large = pdf(3, b"x" * 5000)
    for request in (
        chat(file_part(large)),
        messages(document(large)),
        responses({"type": "input_file", "file_data": data_url(large)}),
    ):
        assert (await measure.sizes(request, counter, "o200k_base")).total == alone
        assert [turn.text for turn in request.turns] == [ASKED]
