"""A file, recording or video that a request carries beside its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LABELS = frozenset({"role", "type", "id", "status", "call_id", "tool_call_id", "tool_use_id"})
"""Keys of messages and parts whose values do not reach the model, unless the values are longer than such a label can
be."""
MOST_LABEL = 128
"""Most characters of such a label."""

AttachmentKind = Literal["document", "image", "audio"]
"""How its tokens are billed. A video is billed as images."""

FILE_PARTS = frozenset(
    {
        *("file", "input_file", "document", "document_url", "container_upload"),
        *("input_audio", "audio_url", "audio"),
        *("video_url", "input_video", "video"),
        "computer_screenshot",
    }
)
"""Types of content parts, in any dialect, that carry neither text nor an image that the parser counts."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts from the opened content, not from the sender's declaration."""

    pages: int = 0
    text_bytes: int = 0
    """Bytes of text in it; for an Office file, of the XML that holds the text."""
    seconds: float = 0.0


@dataclass(slots=True)
class Attachment:
    """A file in the turn with index `turn`."""

    turn: int
    kind: AttachmentKind
    format: str = ""
    """`pdf`, `text`, `office`, `image`, `video`, or the name of a sound format; empty if unknown."""
    data: str | None = None
    """The inline content; None if a URL or an id names it."""
    start: int = 0
    """The offset of the content in `data`, after the head of a data URL."""
    plain: bool = False
    """Whether `data` is the content itself, not its base64."""
    measured: Measured | None = None
    """None until the file has been opened, or if it cannot be opened."""

    @property
    def size(self) -> int:
        """Bytes of the content; 0 if it is not inline."""
        if self.data is None:
            return 0
        held = len(self.data) - self.start
        return held if self.plain else held * 3 // 4
