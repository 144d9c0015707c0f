"""A file, recording or video in a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LABELS = frozenset({"role", "type", "id", "status", "call_id", "tool_call_id", "tool_use_id"})
"""Keys of messages and parts whose values do not reach the model. If a value is longer than `MOST_LABEL`, it counts as
text."""
MOST_LABEL = 128
"""Maximum characters of a value of one of `LABELS` that is not counted."""

AttachmentKind = Literal["document", "image", "audio"]
"""The kind of content, which determines how its tokens are billed. A video is billed as images."""

FILE_PARTS = frozenset(
    {
        *("file", "input_file", "document", "document_url", "container_upload"),
        *("input_audio", "audio_url", "audio"),
        *("video_url", "input_video", "video"),
        "computer_screenshot",
    }
)
"""Types of content parts that are files, in any dialect. They contain neither text nor an image that the parser
counts."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The sizes that the gateway has measured in the content itself. The sender's declarations have no effect on
    them."""

    pages: int = 0
    text_bytes: int = 0
    """Bytes of text in the content; for an Office file, bytes of the XML that contains the text."""
    seconds: float = 0.0


@dataclass(slots=True)
class Attachment:
    """A file in a request. `turn`: index of the turn that contains the file."""

    turn: int
    kind: AttachmentKind
    format: str = ""
    """`pdf`, `text`, `office`, `image`, `video`, or the name of a sound format; empty if unknown."""
    data: str | None = None
    """The content itself, if the request contains it. None if the request has a URL or an id."""
    start: int = 0
    """Position in `data` at which the content begins, after the head of a data URL."""
    plain: bool = False
    """Whether `data` is the plain content; otherwise `data` is Base64."""
    measured: Measured | None = None
    """Sizes of the opened content. None if the file has not been opened or cannot be opened."""

    @property
    def size(self) -> int:
        """The size of the content in bytes; 0 if the request does not contain the content."""
        if self.data is None:
            return 0
        held = len(self.data) - self.start
        return held if self.plain else held * 3 // 4
