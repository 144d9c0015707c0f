"""Remembers the sizes that backends reported for the inputs of a session's earlier requests.

If a model has no public tokenizer, the tokens that the gateway counts differ from the real number. The difference has
two causes: a factor that depends on the texts (see `family_factor`), and tokens that the provider adds or omits, such
as earlier reasoning. The last size that the backend reported for a session is exact. So only the text that was added
since then must be multiplied by a factor.

Each worker has its own reports. A worker may have no report, for example if another worker served the session.
Then the whole count is multiplied by the factor.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.domain.routing.route import Prefix

MOST_SESSIONS = 4096
"""Maximum number of reports, with about 500 bytes each. When the number is exceeded, the report that was not used for
the longest time is deleted."""


@dataclass(frozen=True, slots=True)
class Report:
    """The last request of a session to one backend."""

    counted: int
    """Tokens of the input, as the gateway counts them."""
    reported: int
    """Tokens of the same input, as the backend reported them."""
    lengths: tuple[int, ...]
    """The lengths of the messages, as in `Prefix`. If the lengths of a later request do not begin with these lengths,
    the client has rewritten the history."""


class ReportedSizes:
    """Keeps a `Report` for each pair (session, backend). When full, it deletes the report that was not updated for
    the longest time.

    The object has no locks, because it belongs to one event loop.
    """

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._known: OrderedDict[tuple[bytes, str], Report] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, record: Record) -> None:
        """Store the size of an answered request, if the gateway counted it exactly.

        Other requests are far below every limit, so their sizes are not needed.
        """
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
        """The last report of `backend` about the session of `prefix`. None if there is no report, or if the client has
        changed earlier messages since then."""
        if prefix is None or not self._known:
            return None
        found = self._known.get((prefix.session, backend.name))
        if found is None or prefix.lengths[: len(found.lengths)] != found.lengths:
            return None
        return found
