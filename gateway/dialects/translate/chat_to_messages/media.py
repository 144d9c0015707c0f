"""Converts images and files to Anthropic's content blocks."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any

from gateway.errors import BadRequest

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,", re.ASCII)
_LINK = ("https://", "http://")
_PDF = "application/pdf"
_PDF_BEGINS = "JVBER"
"""The first characters of a PDF file in base64. With them, a PDF is recognised if it is not in a data URL."""
_IMAGE_NAMES = {"image/jpg": "image/jpeg"}

Block = dict[str, Any]


def image(value: Any, where: str) -> Block:
    """The image block for `value`, the field `image_url`. Raises BadRequest if `value` is not a URL, or is a data URL
    without base64."""
    url = value.get("url") if type(value) is dict else value
    if type(url) is not str:
        raise BadRequest(f"{where}.image_url.url must be a string.", param=f"{where}.image_url.url")
    if found := _DATA_URL.match(url):
        return _image(found[1], url[found.end() :])
    if url.startswith("data:"):
        raise BadRequest(f"{where}.image_url.url must hold base64 for this model.", param=f"{where}.image_url.url")
    return {"type": "image", "source": {"type": "url", "url": url}}


def _image(media_type: str, data: str) -> Block:
    media_type = _IMAGE_NAMES.get(media_type.lower(), media_type.lower())
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def document(value: Any, where: str) -> Block:
    """The block for `value`, the field `file`: a PDF or text in base64, an image, or a PDF's URL. Raises BadRequest for
    others, such as another provider's file id."""
    file = value if type(value) is dict else {}
    link = next((file[name] for name in ("file_url", "file_id") if str(file.get(name)).startswith(_LINK)), None)
    block = {"type": "document", "source": {"type": "url", "url": link}} if link else _embedded(file, where)
    name = file.get("filename")
    return {**block, "title": name} if block["type"] == "document" and type(name) is str and name else block


def _embedded(file: Block, where: str) -> Block:
    data = file.get("file_data")
    if type(data) is not str:
        raise BadRequest(f"{where}.file.file_data must be a base64 data URL for this model.", param=f"{where}.file")
    if found := _DATA_URL.match(data):
        media_type, data = found[1].lower(), data[found.end() :]
    else:
        media_type = _PDF if data.startswith(_PDF_BEGINS) else ""
    if media_type == _PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": _PDF, "data": data}}
    if media_type.startswith("image/"):
        return _image(media_type, data)
    if (text := _text(media_type, data)) is not None:
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
    raise BadRequest(f"{where}.file must be a PDF, an image or text for this model.", param=f"{where}.file")


def _text(media_type: str, data: str) -> str | None:
    if not (media_type.startswith("text/") or media_type == "application/json"):
        return None
    try:
        return b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
