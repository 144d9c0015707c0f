"""Measures how fast a backend generates unseen tokens (reasoning, and answers that are not streamed), and how many
bytes of its streams are not text. With both figures, the bill of an answer that ended early can be estimated."""

from __future__ import annotations

_WEIGHT = 0.2
"""Weight of the newest value in a moving average."""
_SPREADS = 2
"""Number of mean deviations that are added to a mean rate. Nine of ten rates are lower than the sum (as in TCP's
retransmission timer, RFC 6298)."""
_EVERY = 16
"""Once the rate is known, only one of this many answers that are not streamed is measured."""
_LEAST_HIDDEN = 32
"""Minimum number of unseen tokens of a stream from which a rate is learned. Fewer tokens may be an error of the
estimate. The time before the text may be a few milliseconds, so the rate would be many times too high."""
SILENT_EVENTS = 3
"""Number of events of a stream that have no text: the role, the finish reason, the usage."""
BEGUN_EVENTS = 1
"""Number of the `SILENT_EVENTS` that have arrived before or with the first text."""
BEGUN_BYTES = 40
"""Bytes that the first event of a stream has in addition to other events. It contains the role
(`"role":"assistant","refusal":null,`)."""
FIRST_FRAME_BYTES = 320.0
"""Assumed number of bytes of an event without its text, until it is measured. The value is that of OpenAI's events with
fingerprint and empty usage, which are the longest."""
_FEW_EVENTS, _ENOUGH_EVENTS = 4, 32
"""In a stream in progress, the length of events is measured from the arrival of `_FEW_EVENTS` events on, until
`_ENOUGH_EVENTS` events have been measured."""
_LEAST_FRAME_BYTES = 40.0
"""Minimum number of bytes of an event without its text, in any dialect."""
BYTES_PER_TOKEN = 4


class Pace:
    """The measurements of one backend in one worker. There is one object for the backend's streams, and one for its
    answers without a stream."""

    __slots__ = ("_looked_at", "_whole_seen", "frame_bytes", "hides", "plain", "rest", "spread", "tokens_per_second")

    def __init__(self, *, plain: bool = False, hides: bool = False) -> None:
        """`plain`: whether the measurements are for answers without a stream. `hides`: whether the backend may generate
        tokens that no stream event contains."""
        self.plain, self.hides = plain, plain or hides
        self.tokens_per_second = 0.0
        """Mean rate of unseen tokens; 0 while unknown. While the rate is unknown, unseen tokens are not charged."""
        self.spread = 0.0
        """Mean deviation of the rate of unseen tokens."""
        self.frame_bytes = FIRST_FRAME_BYTES
        """Number of bytes of a streamed event without its text."""
        self._whole_seen = False
        self._looked_at = 0
        """Number of events of the stream in progress that have been measured."""
        self.rest = 0
        """Number of answers without streaming that are skipped before the next one is measured."""

    def learn(self, tokens: int, seconds: float) -> None:
        """Learn how fast the backend generates unseen tokens: for a complete answer, it generated `tokens` of them in
        `seconds` seconds.
        """
        self.rest = _EVERY - 1 if self.tokens_per_second else 0
        if tokens < (1 if self.plain else _LEAST_HIDDEN) or seconds <= 0:
            return
        rate, known = tokens / seconds, self.tokens_per_second
        if not known:
            self.tokens_per_second, self.spread = rate, rate / 2
            return
        self.spread += _WEIGHT * (abs(rate - known) - self.spread)
        self.tokens_per_second += _WEIGHT * (rate - known)

    def learn_frame(self, tokens: int, hidden: int, events: int, stream_bytes: int) -> None:
        """Learn from a complete stream how many bytes of an event are not text. `tokens`: tokens of the stream.
        `hidden`: maximum number of tokens that are in no event. `events`: number of events with text.
        """
        if not events:
            return
        frame = _frame(tokens, events, stream_bytes)
        if frame < _LEAST_FRAME_BYTES and hidden:
            frame = _frame(tokens - hidden, events, stream_bytes)
        if frame >= _LEAST_FRAME_BYTES:
            self.frame_bytes += (_WEIGHT if self._whole_seen else 1.0) * (frame - self.frame_bytes)
            self._whole_seen = True

    def wants_look(self, events: int) -> bool:
        """Return whether to measure a stream in progress that has had `events` events with text."""
        return self._looked_at < min(events, _ENOUGH_EVENTS) and not self.plain and not self._whole_seen

    def look(self, characters: int, events: int, stream_bytes: int) -> None:
        """Learn from a stream in progress how many bytes of an event are not text. The arguments are counts since the
        first measurement of this stream: `characters` of text, `events` with text, `stream_bytes` received.
        """
        if events < _FEW_EVENTS or events <= self._looked_at:
            return
        self._looked_at = events
        frame = (stream_bytes - characters) / events
        if frame >= _LEAST_FRAME_BYTES:
            self.frame_bytes = frame

    def tokens(self, seconds: float) -> int:
        """The expected number of unseen tokens after `seconds` seconds."""
        return int(self.tokens_per_second * max(seconds, 0.0))

    @property
    def most_per_second(self) -> float:
        """The number of unseen tokens per second that hardly any answer exceeds; 0 while it is unknown."""
        return self.tokens_per_second + _SPREADS * self.spread


def _frame(tokens: int, events: int, stream_bytes: int) -> float:
    return (stream_bytes - tokens * BYTES_PER_TOKEN) / (events + SILENT_EVENTS)


def streamed_tokens(
    events: int, stream_bytes: int, frame_bytes: float = FIRST_FRAME_BYTES, *, begun: bool = False
) -> int:
    """Estimate the tokens of a stream whose end is unknown. An event counts as one token, or as more if its text is
    long. `begun`: whether text has arrived, but not the end."""
    if begun:
        text_bytes = stream_bytes - BEGUN_BYTES - (events + BEGUN_EVENTS) * frame_bytes
    else:
        text_bytes = stream_bytes - (events + SILENT_EVENTS) * frame_bytes
    return max(events, int(text_bytes // BYTES_PER_TOKEN), 0)
