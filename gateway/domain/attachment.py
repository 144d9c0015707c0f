"""A file, recording or video that a request contains in addition to its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LABELS = frozenset({"role", "type", "id", "status", "call_id", "tool_call_id", "tool_use_id"})
"""Keys of messages and parts whose values do not reach the model. A value that is longer than `MOST_LABEL` counts as
text."""
MOST_LABEL = 128
"""Maximum characters of such a value."""

AttachmentKind = Literal["document", "image", "audio"]
"""The kind of content, which decides how its tokens are billed. A video is billed as images."""

FILE_PARTS = frozenset(
    {
        *("file", "input_file", "document", "document_url", "container_upload"),
        *("input_audio", "audio_url", "audio"),
        *("video_url", "input_video", "video"),
        "computer_screenshot",
    }
)
"""Types of content parts, in any dialect, that contain neither text nor an image that the parser counts."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts from the opened content. They do not depend on the sender's declaration."""

    pages: int = 0
    text_bytes: int = 0
    """Bytes of text in the content; for an Office file, bytes of the XML that contains the text."""
    seconds: float = 0.0


@dataclass(slots=True)
class Attachment:
    """A file in the turn with index `turn`."""

    turn: int
    kind: AttachmentKind
    format: str = ""
    """`pdf`, `text`, `office`, `image`, `video`, or the name of a sound format; empty if unknown."""
    data: str | None = None
    """The inline content; None if it is given by a URL or an id."""
    start: int = 0
    """Position in `data` at which the content begins, after the head of a data URL."""
    plain: bool = False
    """Whether `data` is the content itself and not its base64."""
    measured: Measured | None = None
    """None if the file has not been opened or cannot be opened."""

    @property
    def size(self) -> int:
        """Bytes of the content; 0 if the content is not inline."""
        if self.data is None:
            return 0
        held = len(self.data) - self.start
        return held if self.plain else held * 3 // 4
