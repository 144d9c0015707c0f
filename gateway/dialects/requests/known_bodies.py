"""Remembers recent large bodies. A body that continues a remembered conversation is parsed from its first new message.

A coding agent sends its whole conversation with every request, so all messages except the last ones have the bytes that
the request before had. These bytes are compared, not hashed, so that results about other bytes are never used. The
bytes around the known messages are parsed again. Each API key has its own bodies.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from gateway.dialects.json_splice import skip_blanks, value_end
from gateway.dialects.openai_chat.request import load_object
from gateway.domain.body_scan import MODEL, WORDS, BodyScan, has_escaped_letter
from gateway.domain.continued import Continued, Notes
from gateway.domain.request import Turn
from gateway.errors import BadRequest

LEAST_BYTES = 32 * 2**10
"""Minimum bytes of a body that is remembered."""
MOST_BYTES = 64 * 2**20
_PER_BYTE = 3
"""Bytes of memory for each byte of a body: the body, its strings as Python objects, and its facts."""
_PROBE = 64
_KEY = secrets.token_hex(16)
"""The name that the key of the conversation has while the rest of a body is parsed. No client can know this name, so a
second key with the conversation's own name is noticed."""
_TRIES = 8
"""Maximum number of places in a body at which the conversation is searched for."""


class Facts(NamedTuple):
    """The facts of `BodyScan` about a part of a body that begins and ends between two values."""

    items: int = 0
    keys: int = 0
    values: int = 0
    words: frozenset[bytes] = frozenset()
    escaped_letter: bool = False
    models: int = 0

    @classmethod
    def of(cls, part: bytes, words: frozenset[bytes] = WORDS) -> Facts:
        """`words`: the words that may occur in `part`."""
        return cls(
            part.count(b"{") + part.count(b"["),
            part.count(b":"),
            part.count(b","),
            frozenset([word for word in words if part.rfind(word) >= 0]),
            has_escaped_letter(part),
            part.count(MODEL),
        )

    def plus(self, other: Facts) -> Facts:
        return Facts(
            self.items + other.items,
            self.keys + other.keys,
            self.values + other.values,
            self.words | other.words if other.words else self.words,
            self.escaped_letter or other.escaped_letter,
            self.models + other.models,
        )


def scanned(raw: bytes) -> BodyScan:
    """The scan of a body of which nothing is known."""
    return BodyScan(raw, *Facts.of(raw))


@dataclass(slots=True, eq=False)
class _Body:
    """A remembered body. `items`: its messages, or the items of its `input`."""

    owner: tuple[str, str]
    """The API key, and the name of the conversation's field."""
    raw: bytes
    items: list[Any]
    turns: list[Turn]
    notes: Notes
    fields: dict[str, Any]
    """The parsed body."""
    words: frozenset[bytes]
    """The members of `WORDS` that occur in `raw`."""
    head: bytes = b""
    """The bytes before the first item, with `_KEY` as the key of the conversation."""
    start: int = 0
    ends: list[int] = field(default_factory=list)
    """The position after each item. Empty until a later body may continue this one."""
    facts: list[Facts] = field(default_factory=list)
    """The facts about the bytes from `start` to each of `ends`."""
    tail: bytes = b""
    """The bytes after the last item."""
    around: Facts | None = None
    """The facts about the bytes before and after the items."""
    lost: bool = False
    """Whether the items cannot be located in `raw`."""

    def resembles(self, raw: bytes) -> bool:
        """Whether it is worthwhile to compare `raw` with this body."""
        at = len(self.raw) // 4
        return not self.lost and raw.startswith(self.raw[at : at + _PROBE], at)

    def locate(self) -> None:
        """Find the positions of the items."""
        quoted = b'"%b"' % self.owner[1].encode()
        for key, at in _places(self.raw, quoted):
            head = b'%b"%b":[' % (self.raw[:key], _KEY.encode())
            ends = _ends_of(self.raw, at, self.items, first=True)
            if ends and (found := _rest_of(head + self.raw[ends[-1] :], self.owner[1])) and not found[1]:
                self.head, self.start, self.ends = head, at, ends
                self._count()
                return
        self.lost = True

    def _count(self) -> None:
        """Find the facts about the items that have none yet."""
        facts = self.facts[-1] if self.facts else Facts()
        at = self.ends[len(self.facts) - 1] if self.facts else self.start
        for end in self.ends[len(self.facts) :]:
            facts = facts.plus(Facts.of(self.raw[at:end], self.words))
            self.facts.append(facts)
            at = end
        if self.around is None or self.raw[at:] != self.tail:
            self.tail = self.raw[at:]
            self.around = Facts.of(self.head + self.tail)

    def follow(self, known: Known) -> None:
        """Take over what is known of the first items, and find the positions of the others."""
        before, count = known.body, known.shared
        self.head, self.start = before.head, before.start
        ends = _ends_of(self.raw, known.end, self.items[count:], first=False)
        if ends or count == len(self.items):
            self.ends, self.facts = before.ends[:count] + ends, before.facts[:count]
            self.tail, self.around = before.tail, before.around
            self._count()

    def common(self, raw: bytes) -> int:
        """The number of items whose bytes `raw` has at the same positions, if it has the bytes before them too."""
        view = memoryview(self.raw)
        if not raw.startswith(view[: self.start]):
            return 0
        least, most, at = 0, len(self.ends), self.start
        while least < most:
            middle = (least + most + 1) // 2
            if raw.startswith(view[at : self.ends[middle - 1]], at):
                least, at = middle, self.ends[middle - 1]
            else:
                most = middle - 1
        return least


class Known(NamedTuple):
    """The items of an earlier body with which a new body begins."""

    body: _Body
    shared: int

    @property
    def is_most(self) -> bool:
        """Whether these are most items of the earlier body, so that the new body probably replaces it."""
        return 2 * self.shared >= len(self.body.ends)

    @property
    def end(self) -> int:
        """The position after the last known item."""
        return self.body.ends[self.shared - 1]

    def parsed(self, raw: bytes) -> Continued | None:
        """The parsed body `raw`. None if the rest is not the JSON that continues the conversation; then `raw` must be
        parsed as a whole."""
        if len(raw) <= self.end:
            return None
        earlier, at = self.body, skip_blanks(raw, self.end)
        more = raw[at : at + 1] == b","
        if not more and raw[at : at + 1] != b"]":
            return None
        at, facts = at + more, earlier.facts[self.shared - 1]
        last, around = len(raw) - len(earlier.tail), earlier.around
        if around is not None and last >= at and raw.endswith(earlier.tail):
            rest, facts = b'{"%b":[%b]}' % (_KEY.encode(), new := raw[at:last]), facts.plus(around).plus(Facts.of(new))
        else:
            rest, around = earlier.head + raw[at:], None
            facts = facts.plus(Facts.of(rest))
        found = _rest_of(rest, name := earlier.owner[1])
        if found is None or (more and not found[1]):
            return None
        fields, items = found
        if around is not None:
            if len(fields) > 1:  # the conversation ends before the known tail, and other fields follow
                return None
            fields = earlier.fields
        body = {name if key == _KEY else key: value for key, value in fields.items()}
        body[name] = earlier.items[: self.shared] + items
        turns = [turn for turn in earlier.turns if turn.index < self.shared]
        scan = BodyScan(raw, *facts._replace(values=facts.values + more))
        return Continued(body, rest, scan, self.shared, turns, earlier.notes)


class KnownBodies:
    """The recent large bodies of one worker, with at most `most_bytes` bytes of memory. Methods may be called from
    several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._lock = most_bytes // _PER_BYTE, threading.Lock()
        self._bodies: dict[tuple[str, str], list[_Body]] = {}
        """(API key, name of the conversation's field) → its bodies, the latest last."""
        self._single, self._continuing = _Queue(), _Queue()

    def __len__(self) -> int:
        """The number of bodies that are remembered."""
        return len(self._single.bodies) + len(self._continuing.bodies)

    def find(self, owner: str, name: str, raw: bytes) -> Known | None:
        """The remembered body of the API key `owner` with the most items that `raw` has too. `name`: the field of the
        conversation."""
        best: Known | None = None
        for body in reversed(tuple(self._bodies.get((owner, name), ()))):
            if body.resembles(raw):
                if not body.ends:
                    body.locate()
                count = body.common(raw)
                if count and (best is None or count > best.shared):
                    best = Known(body, count)
                    if best.is_most:
                        break
        return best

    def keep(
        self,
        owner: str,
        name: str,
        raw: bytes,
        fields: dict[str, Any],
        turns: list[Turn],
        notes: Notes,
        words: frozenset[bytes],
        known: Known | None,
    ) -> None:
        """Remember the body `raw`. `fields`: the parsed body. `words`: those of its scan. `known`: result of `find` for
        it."""
        items = fields.get(name)
        if type(items) is not list or not items or not LEAST_BYTES <= len(raw) <= self._most // 4:
            return
        if turns[-1].index < len(items) - 1:  # items that are no turns count as a part of the turn before, if any
            turns = turns[:-1]
        turns = [turn for turn in turns if turn.index >= 0]
        body = _Body((owner, name), raw, list(items), turns, notes, fields, words)
        if known is not None:
            body.follow(known)
            notes.start, notes.ends = body.start, body.ends
        with self._lock:
            if known is not None and known.is_most:
                self._remove(known.body)
            (self._single if known is None else self._continuing).add(body)
            self._bodies.setdefault(body.owner, []).append(body)
            while self._single.size + self._continuing.size > self._most:
                single = self._single.size > self._most // 4 or not self._continuing.size
                self._remove(next(iter((self._single if single else self._continuing).bodies)))

    def _remove(self, body: _Body) -> None:
        if self._single.discard(body) or self._continuing.discard(body):
            bodies = self._bodies[body.owner]
            bodies.remove(body)
            if not bodies:
                del self._bodies[body.owner]


class _Queue:
    """Bodies in the order in which they are evicted. Bodies that no request has continued are evicted earlier than
    others, because most of them belong to no session."""

    def __init__(self) -> None:
        self.bodies: dict[_Body, None] = {}
        self.size = 0

    def add(self, body: _Body) -> None:
        self.bodies[body] = None
        self.size += len(body.raw)

    def discard(self, body: _Body) -> bool:
        """Remove `body`. Returns False if it is not here."""
        if body not in self.bodies:
            return False
        del self.bodies[body]
        self.size -= len(body.raw)
        return True


def _places(raw: bytes, quoted: bytes) -> Iterator[tuple[int, int]]:
    """Yield the first places at which an array is the value of the key `quoted`: (position of the key, position of the
    first item)."""
    key = -1
    for _ in range(_TRIES):
        key = raw.find(quoted, key + 1)
        if key < 0:
            return
        at = skip_blanks(raw, key + len(quoted))
        if raw[at : at + 1] == b":" and raw[at := skip_blanks(raw, at + 1)] == b"["[0]:
            yield key, skip_blanks(raw, at + 1)


def _ends_of(raw: bytes, at: int, items: list[Any], *, first: bool) -> list[int]:
    """The position after each of `items`, which stand in `raw` from `at` on; empty if they do not. `first`: whether
    no comma stands before them."""
    ends: list[int] = []
    for item in items:
        if not first:
            at = skip_blanks(raw, at)
            if raw[at] != b","[0]:
                return []
            at = skip_blanks(raw, at + 1)
        first = False
        end = _end_of(raw, at, item)
        if not end:
            return []
        ends.append(at := end)
    return ends


def _end_of(raw: bytes, at: int, item: Any) -> int:
    """The position after `item`, which stands at `at`; 0 if another value stands there."""
    written = orjson.dumps(item)  # most clients write JSON as orjson does
    if raw.startswith(written, at):
        return at + len(written)
    end = value_end(raw, at)
    return end if orjson.loads(raw[at:end]) == item else 0


def _rest_of(rest: bytes, name: str) -> tuple[dict[str, Any], list[Any]] | None:
    """The parsed `rest` and the items in it. None if it has another field `name`, or is no valid body."""
    try:
        fields = load_object(rest)
    except BadRequest:
        return None
    items = fields.get(_KEY)
    return (fields, items) if type(items) is list and name not in fields else None
