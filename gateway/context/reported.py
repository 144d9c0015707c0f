"""Remembers the input sizes that backends reported for a session's earlier requests.

For a model without a public tokenizer, the gateway's token count is wrong by a factor that depends on the texts (see
`family_factor`), and by tokens that the provider adds or omits, such as earlier reasoning. A session's last report is
exact; only the text added since must be scaled. Each worker has its own reports. Without a report, because another
worker served the session, the whole count is scaled.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.domain.routing.route import Prefix

MOST_SESSIONS = 4096
"""Maximum number of reports, of about 500 bytes each. When full, the least recently used one is evicted."""


@dataclass(frozen=True, slots=True)
class Report:
    """The last request of a session to one backend."""

    counted: int
    """The input's tokens as the gateway counts them."""
    reported: int
    """The same input's tokens as the backend reported them."""
    lengths: tuple[int, ...]
    """Lengths as in `Prefix`. If a later request does not begin with them, the client has rewritten the history."""


class ReportedSizes:
    """(Session, backend) → `Report`, with eviction of the least recently used. No locks, because it belongs to one
    event loop."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._known: OrderedDict[tuple[bytes, str], Report] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, record: Record) -> None:
        """Store the size of an answered request, if it was counted exactly. Other requests are far below every
        limit."""
        attempt = record.served_by
        if attempt is None or not attempt.counted_tokens or attempt.outcome != "ok":
            return
        usage, prefix = attempt.usage, record.route.prefix if record.route is not None else None
        if usage is None or usage.estimated or prefix is None or not prefix.lengths or not usage.all_input:
            return
        key = prefix.session, attempt.backend.name
        self._known[key] = Report(attempt.counted_tokens, usage.all_input, prefix.lengths)
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def last(self, prefix: Prefix | None, backend: Backend) -> Report | None:
        """This session's last report from `backend`; None if there is none, or if the history was rewritten."""
        if prefix is None or not self._known:
            return None
        found = self._known.get((prefix.session, backend.name))
        if found is None or prefix.lengths[: len(found.lengths)] != found.lengths:
            return None
        return found
