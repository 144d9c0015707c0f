"""Finds the attachments of a request, in every client dialect and inside tool results.

A request without attachments is not searched. The parsers have already counted the parts that are attachments
(`Turn.files`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.domain.attachment import FILE_PARTS, Attachment, AttachmentKind
from gateway.domain.request import CompletionRequest

Part = dict[str, Any]

_HOLDERS = frozenset({"tool_result", "search_result"})
"""Types of blocks whose content is a list of blocks."""
_AUDIO = frozenset({"input_audio", "audio_url", "audio"})
_PICTURES = frozenset({"video_url", "input_video", "video", "computer_screenshot"})
_LINKS = ("http://", "https://", "gs://", "s3://", "file-")
_HEAD = 512
"""Maximum characters of the head of a data URL (the part before the content)."""
_SNIFFED = {"JVBERi": "pdf", "UEsDB": "office", "0M8R4": "office"}
"""First characters of content in base64 → format of the content: a PDF (`%PDF-`), a zip archive, an old Office file."""
_OFFICE = ("officedocument", "opendocument", "msword", "ms-excel", "ms-powerpoint")
_OFFICE_NAMES = (".docx", ".xlsx", ".pptx", ".doc", ".xls", ".ppt", ".odt", ".ods", ".odp")
_TEXT = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")
_TEXT_NAMES = (".txt", ".md", ".csv", ".tsv", ".json", ".xml", ".html", ".yaml", ".yml", ".log", ".py", ".js", ".sql")


def find(request: CompletionRequest) -> list[Attachment]:
    """The attachments of a request, in any order. They have not been opened."""
    found: list[Attachment] = []
    messages: Any = None
    for turn in request.turns:
        if turn.files and turn.index >= 0:
            if messages is None:
                messages = request.body[request.input_field]
            found.extend(_in_message(messages[turn.index], turn.index))
    return found


def _in_message(message: Part, turn: int) -> Iterator[Attachment]:
    if type(message.get("audio")) is dict:  # a recording of an earlier answer, which is named only by its id
        yield Attachment(turn, "audio")
    if message.get("type") == "image_generation_call":
        yield Attachment(turn, "image", "image")
    for part in _parts(message):
        if part.get("type") in FILE_PARTS:
            yield from _read(part, turn)


def _parts(message: Part) -> Iterator[Part]:
    """Yield every part in the content of a message or in the output of a call. Parts inside these parts are yielded
    too."""
    waiting = [message.get("content"), message.get("output")]
    while waiting:
        held = waiting.pop()
        for part in held if type(held) is list else (held,):
            if type(part) is dict:
                yield part
                if part.get("type") in _HOLDERS:
                    waiting.append(part.get("content"))


def _read(part: Part, turn: int) -> Iterator[Attachment]:
    kind = part["type"]
    if kind in _PICTURES:
        yield Attachment(turn, "image", "image" if kind == "computer_screenshot" else "video")
    elif kind in _AUDIO:
        yield _recording(part, turn)
    elif kind == "document" and type(part.get("source")) is dict:
        yield from _block(part, turn)
    else:
        file = part.get("file")
        held: Part = file if kind == "file" and type(file) is dict else part
        name = held.get("filename")
        yield _inline(_given(held), turn, "document", name=name if type(name) is str else "")


def _given(held: Part) -> Any:
    """The content that the part itself contains.

    None if the part also has an id or a second content, because it is then unknown which of them the vendor reads.
    """
    given = [held.get(name) for name in ("file_data", "data", "file_url", "document_url", "url", "file_id")]
    texts = [text.get("url") if type(text) is dict else text for text in given]
    named = [text for text in texts if text]
    return named[0] if len(named) == 1 and not texts[-1] else None


def _recording(part: Part, turn: int) -> Attachment:
    held = next((part[name] for name in ("input_audio", "audio_url", "audio") if type(part.get(name)) is dict), part)
    name = held.get("format")
    form = name.lower() if type(name) is str else ""
    given = held.get("data") or held.get("url") or held.get("audio_url") or held.get("input_audio")
    found = _inline(given, turn, "audio")
    if found.kind == "audio" and form:
        found.format = form
    return found


def _block(block: Part, turn: int) -> Iterator[Attachment]:
    """Yield the attachment in a document block of Anthropic's dialect. The title and the context of the block are
    attachments too. A plain text is not yielded, because the text of the turn already contains it."""
    source = block["source"]
    form, media = source.get("type"), source.get("media_type")
    beside = [text for text in (block.get("title"), block.get("context")) if type(text) is str and text]
    if form == "content":
        held = source.get("content")
        for part in _parts({"content": held}):
            if part.get("type") == "image":
                yield Attachment(turn, "image", "image")
            elif type(part.get("text")) is str:
                beside.append(part["text"])
        if type(held) is str:
            beside.append(held)
    elif form == "base64":
        yield _inline(source.get("data"), turn, "document", media if type(media) is str else "")
    elif form != "text" or type(source.get("data")) is not str:
        yield Attachment(turn, "document")
    for text in beside:
        yield Attachment(turn, "document", "text", text, plain=True)


def _inline(given: Any, turn: int, kind: AttachmentKind, media: str = "", name: str = "") -> Attachment:
    """An attachment made from `given`: base64, a data URL, or a reference to content that is stored elsewhere."""
    if type(given) is not str or given.startswith(_LINKS):
        return Attachment(turn, kind)
    start, plain = 0, False
    if given.startswith("data:"):
        start = given.find(",", 0, _HEAD) + 1
        head = given[5 : max(start - 1, 5)]
        media, plain = media or head.partition(";")[0], not head.endswith("base64")
    form = _format(media.lower(), name.lower(), given[start : start + 8])
    if form in ("image", "video"):
        kind = "image"
    elif form == "audio":
        kind, form = "audio", media.partition("/")[2]
    elif kind == "audio":
        form = ""
    return Attachment(turn, kind, form, given, start, plain)


def _format(media: str, name: str, begins: str) -> str:
    """The format of the content. It is recognised by `begins`, the first characters of the content. If these are
    unknown, the media type or the file name decides."""
    for begin, form in _SNIFFED.items():
        if begins.startswith(begin):
            return form
    group = media.partition("/")[0]
    if group in ("image", "audio", "video"):
        return group
    if media == "application/pdf" or name.endswith(".pdf"):
        return "pdf"
    if any(word in media for word in _OFFICE) or name.endswith(_OFFICE_NAMES):
        return "office"
    return "text" if media.startswith(_TEXT) or name.endswith(_TEXT_NAMES) else ""
