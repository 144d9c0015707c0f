"""A file, recording or video that a request carries beside its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LABELS = frozenset({"role", "type", "id", "status", "call_id", "tool_call_id", "tool_use_id"})
"""Keys of messages and parts whose values do not reach the model, unless they are longer than such values can be."""
MOST_LABEL = 128
"""Characters of such a value."""

AttachmentKind = Literal["document", "image", "audio"]
"""How its tokens are billed. A video counts as images."""

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
    """Counted by opening the content, not believed from what its sender declares alone."""

    pages: int = 0
    text_bytes: int = 0
    """Bytes of text found in it; of the XML that holds the text for an Office file."""
    seconds: float = 0.0


@dataclass(slots=True)
class Attachment:
    """One of them, found in the turn with index `turn`."""

    turn: int
    kind: AttachmentKind
    format: str = ""
    """`pdf`, `text`, `office`, `image`, `video`, or the name of a sound format; empty where it is unknown."""
    data: str | None = None
    """Holds the content inline; None: the content is elsewhere, named by a URL or an id."""
    start: int = 0
    """Where the content begins in `data`, after the head of a data URL."""
    plain: bool = False
    """Does `data` hold the content itself, not base64 of it?"""
    measured: Measured | None = None
    """None until it has been opened, and where it cannot be."""

    @property
    def size(self) -> int:
        """Bytes of the content; 0 where it is elsewhere."""
        if self.data is None:
            return 0
        held = len(self.data) - self.start
        return held if self.plain else held * 3 // 4
