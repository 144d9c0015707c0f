"""Remembers recent large bodies. A body that continues a remembered conversation is parsed only from its first new
message on.

A coding agent sends its whole conversation with every request, so all messages except the last ones have the same
bytes as in the request before. These bytes are compared and not hashed, so that results for other bytes are never
used. The bytes around the known messages are parsed again. Each API key has its own remembered bodies for each client
dialect, because two dialects read the same messages differently.
"""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

import orjson

from gateway.dialects.json_splice import skip_blanks, value_end
from gateway.dialects.openai_chat.request import load_object
from gateway.dialects.requests.body_facts import Facts, memory_of, memory_of_item
from gateway.domain.body_scan import BodyScan
from gateway.domain.continued import Continued, Notes
from gateway.domain.request import Turn
from gateway.errors import BadRequest

LEAST_BYTES = 32 * 2**10
"""Minimum bytes of a body that is remembered."""
MOST_BYTES = 64 * 2**20
MOST_IDLE_S = 3600.0
"""A body is forgotten if no request has continued it for this number of seconds. This is the longest lifetime of a
provider's prompt cache. A session rarely goes on after such a pause."""
_PER_ITEM = 900
"""Bytes of memory for the turn and the facts of each item of the conversation."""
_KEY = secrets.token_hex(16)
"""The name that the key of the conversation has while the rest of a body is parsed. No client can know this name, so a
second key with the conversation's own name is noticed."""
_TRIES, _ARRAYS = 8, 2
"""Maximum number of places in a body at which the conversation's key is searched for, and of arrays that are compared
with the conversation."""
MOST_ALIKE = 32
"""Maximum number of remembered bodies with which a new body is compared."""
_MOST_LOOKED = 64
"""Maximum number of remembered bodies at one place of the index whose beginning is compared with a new body."""
MOST_LOCATED = 4
"""Maximum number of remembered bodies whose items are located for one request."""
_PROBE = 64
"""Number of bytes of a body in a key (`_Place`) of the index of remembered bodies."""
_NO_FACTS = Facts()
_Place = tuple[str, str, int, bytes]
"""The API key with the client dialect, the name of the conversation's field, a position, and the bytes of the body from
this position on."""
_index, _beginning = attrgetter("index"), attrgetter("beginning")
_WIDER, _BLANKS = 8, 1000
"""An item of a body takes at most `_WIDER` times the bytes that orjson writes for the item, and `_BLANKS` more bytes;
otherwise the items are not located. White space and escapes make an item longer."""


@dataclass(slots=True, eq=False)
class _Body:
    """A remembered body. `items`: its messages, or the items of its `input`."""

    conversation: tuple[str, str]
    """The API key with the client dialect, and the name of the conversation's field."""
    raw: bytes
    items: list[Any]
    turns: list[Turn]
    notes: Notes
    fields: dict[str, Any]
    """The parsed body."""
    words: frozenset[bytes]
    """The members of `WORDS` that occur in `raw`."""
    size: int = 0
    """Maximum bytes of memory."""
    kept_at: float = 0.0
    head: bytes = b""
    """The bytes before the first item, with `_KEY` as the key of the conversation."""
    start: int = 0
    ends: Sequence[int] = ()
    """The position after each item. Empty until the items are located. All other facts are set before `ends`, because
    another thread may use them as soon as `ends` is not empty."""
    facts: list[Facts] = field(default_factory=list)
    """The facts about the bytes from `start` to each of `ends`."""
    tail: bytes = b""
    """The bytes after the last item."""
    around: Facts = _NO_FACTS
    """The facts about the bytes before and after the items."""
    searched: bool = False
    """Whether `locate` was called."""
    beginning: memoryview = field(init=False)
    """The first quarter of `raw`. Only bodies that begin with it are compared item by item."""
    place: _Place = field(init=False)
    """The place of `raw` in the index of remembered bodies."""

    def __post_init__(self) -> None:
        self.beginning = memoryview(self.raw)[: len(self.raw) // 4]
        self.place = _place(self.conversation, self.raw, 1 << len(self.raw).bit_length() - 2)  # see `_bodies`

    def locate(self) -> None:
        """Find the positions of the items."""
        quoted = b'"%b"' % self.conversation[1].encode()
        for key, at in _places(self.raw, quoted):
            head = b'%b"%b":[' % (self.raw[:key], _KEY.encode())
            ends = _ends_of(self.raw, at, self.items, first=True)
            if ends and (found := _rest_of(head + self.raw[ends[-1] :], self.conversation[1])) and not found[1]:
                self.head, self.start = head, at
                self._count(ends)
                return

    def _count(self, ends: Sequence[int]) -> None:
        """Set `ends`, and find the facts about the items that have no facts yet."""
        facts = self.facts[-1] if self.facts else _NO_FACTS
        at = ends[len(self.facts) - 1] if self.facts else self.start
        known = len(self.facts)
        turns = {turn.index: turn for turn in self.turns[bisect_left(self.turns, known, key=_index) :]}
        for index, end in enumerate(ends[known:], known):
            part = self.raw[at:end]
            memory = facts.memory + memory_of_item(part, self.items[index], turns.get(index))
            facts = facts.plus(Facts.of(part, self.words))._replace(memory=memory)
            self.facts.append(facts)
            at = end
        if self.raw[at:] != self.tail:
            self.tail = self.raw[at:]
            around = Facts.of(self.head + self.tail)
            memory = memory_of(self.head + self.tail, around.items, around.values, around.keys)
            self.around = around._replace(memory=memory)
        self.ends = ends

    def follow(self, known: Known) -> None:
        """Copy the facts about the first items from an earlier body. `known`: the items that both bodies have."""
        before = known.body
        self.head, self.start, self.tail, self.around = before.head, before.start, before.tail, before.around
        self.facts = before.facts[: known.shared]
        self._count(self.notes.ends)

    def memory(self, scan: BodyScan) -> int:
        """The maximum bytes of memory of the body. `scan`: scan of `raw`."""
        if self.ends:
            known = self.facts[-1].memory + self.around.memory
        else:
            known = memory_of(self.raw, scan.items, scan.values, scan.keys)
        return known + len(self.items) * _PER_ITEM

    def common(self, raw: bytes) -> int:
        """The number of leading items whose bytes are at the same positions in `raw`. 0 if the bytes before the
        items differ.
        """
        view, ends = memoryview(self.raw), self.ends
        if not raw.startswith(view[: self.start]):
            return 0
        least, most, at = 0, len(ends), self.start
        middle = max(most - 1, 1)  # most clients repeat all items, or replace the last one
        while least < most:
            if raw.startswith(view[at : ends[middle - 1]], at):
                least, at = middle, ends[middle - 1]
            else:
                most = middle - 1
            middle = (least + most + 1) // 2
        return least


class Known(NamedTuple):
    """The items that a new body has in common with an earlier body. These are its first items."""

    body: _Body
    shared: int

    @property
    def is_most(self) -> bool:
        """Whether these items are most of the earlier body, so that the new body probably continues it and can
        replace it.
        """
        return 2 * self.shared >= len(self.body.ends)

    @property
    def end(self) -> int:
        """The position after the last known item."""
        return self.body.ends[self.shared - 1]

    def new_bytes(self, raw: bytes) -> int:
        """The number of bytes of `raw` that must be parsed, because they are not known from the earlier body."""
        last = len(raw) - len(self.body.tail)
        if last >= self.end and raw.endswith(self.body.tail):
            return last - self.end
        return len(self.body.head) + len(raw) - self.end

    def parsed(self, raw: bytes) -> Continued | None:
        """Parse only the part of `raw` that is not known, and return the whole parsed body.

        If `raw` ends as the earlier body, only the items between are parsed; otherwise all that follows the known
        items. None if this part is not JSON that continues the conversation, or if the new items are not found in it;
        then `raw` must be parsed as a whole.
        """
        earlier, end = self.body, self.end
        if len(raw) <= end:
            return None
        at = skip_blanks(raw, end)
        comma = raw[at : at + 1] == b","
        if not comma and raw[at : at + 1] != b"]":
            return None
        at, last = at + comma, len(raw) - len(earlier.tail)
        same_tail = at <= last and raw.endswith(earlier.tail)
        rest = b'{"%b":[%b]}' % (_KEY.encode(), raw[at:last]) if same_tail else earlier.head + raw[at:]
        found = _rest_of(rest, name := earlier.conversation[1])
        if found is None or (comma and not found[1]):
            return None
        fields, items = found
        new_ends = _ends_of(raw, end, items, first=False)
        if len(new_ends) < len(items):
            return None
        facts = earlier.facts[self.shared - 1]
        if same_tail:
            if len(fields) > 1:  # the conversation ends before the known tail, and other fields follow
                return None
            fields, facts = earlier.fields, facts.plus(earlier.around).plus(Facts.of(raw[end:last]))
        else:
            facts = facts.plus(Facts.of(earlier.head + raw[end:]))
        body = {name if key == _KEY else key: value for key, value in fields.items()}
        body[name] = earlier.items[: self.shared] + items
        turns = earlier.turns[: bisect_left(earlier.turns, self.shared, key=_index)]
        notes = Notes(start=earlier.start, ends=[*earlier.ends[: self.shared], *new_ends])
        return Continued(body, rest, facts.scan(raw), self.shared, turns, earlier.notes, notes)


def to_locate(bodies: list[_Body]) -> list[_Body]:
    """Those of `bodies` whose items must be located before they can be compared; at most MOST_LOCATED."""
    return [body for body in bodies if not body.searched and not body.ends][:MOST_LOCATED]


def longest(bodies: list[_Body], raw: bytes) -> Known | None:
    """The member of `bodies` that has the most first items in common with `raw`. None if no body has its first item in
    common."""
    best: Known | None = None
    for body in bodies:
        count = body.common(raw) if body.ends else 0
        if count and (best is None or count > best.shared):
            best = Known(body, count)
            if best.is_most:
                break
    return best


class KnownBodies:
    """The recent large bodies of one worker, with at most `most_bytes` bytes of memory. Methods may be called from
    several threads. `clock`: the time in seconds."""

    def __init__(self, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock, self._lock = most_bytes, clock, threading.Lock()
        self._bodies: dict[_Place, list[_Body]] = {}
        """The bodies at each place, the latest last. The position of a place is the power of two between a quarter and
        half of the body's length, so a body that continues another one has the same bytes there."""
        self._single, self._continuing = _Queue(), _Queue()

    def __len__(self) -> int:
        """The number of bodies that are remembered."""
        return len(self._single.bodies) + len(self._continuing.bodies)

    def alike(self, owner: str, name: str, raw: bytes) -> list[_Body]:
        """The remembered bodies of `owner` that `raw` may continue. The longest come first; of equally long bodies, the
        latest. `owner`: the API key and the client dialect. `name`: the field of the conversation."""
        found, at = list[_Body](), 1 << max(len(raw), 1).bit_length() - 1
        while at >= LEAST_BYTES // 2:
            if bodies := self._bodies.get(_place((owner, name), raw, at)):
                latest = bodies[: -_MOST_LOOKED - 1 : -1]
                found += compress(latest, map(raw.startswith, map(_beginning, latest)))
            at //= 2
        return [body for body in found if body.ends or not body.searched][:MOST_ALIKE]

    def locate(self, bodies: list[_Body]) -> None:
        """Find the positions of the items of `bodies`. This takes several times as long as parsing the bodies, so do
        not call it on the event loop."""
        for body in bodies:
            with self._lock:
                searched, body.searched = body.searched, True
            if not searched:
                body.locate()

    def keep(
        self,
        owner: str,
        name: str,
        raw: bytes,
        fields: dict[str, Any],
        turns: list[Turn],
        notes: Notes,
        scan: BodyScan,
        known: Known | None,
    ) -> None:
        """Remember the body `raw`. `fields`: the parsed body. `scan`: scan of `raw`. `known`: result of `longest` for
        `raw`; None if `raw` was parsed as a whole."""
        items = fields.get(name)
        if type(items) is not list or not items or len(raw) < LEAST_BYTES:
            return
        if turns[-1].index < len(items) - 1:  # items that are no turns count as a part of the turn before, if any
            turns = turns[:-1]
        turns = turns[bisect_left(turns, 0, key=_index) :]
        body = _Body((owner, name), raw, list(items), turns, notes, fields, scan.words)
        if known is not None:
            body.follow(known)
        body.size, body.kept_at = body.memory(scan), self._clock()
        if body.size > self._most // 2:
            return
        with self._lock:
            if known is not None and known.is_most:
                self._remove(known.body)
            (self._single if known is None else self._continuing).add(body)
            self._bodies.setdefault(body.place, []).append(body)
            for queue in (self._single, self._continuing):
                while queue.bodies and (oldest := next(iter(queue.bodies))).kept_at < body.kept_at - MOST_IDLE_S:
                    self._remove(oldest)
            while self._single.size + self._continuing.size > self._most:
                single = self._single.size > self._most // 4 or not self._continuing.size
                self._remove(self._single.random() if single else next(iter(self._continuing.bodies)))

    def _remove(self, body: _Body) -> None:
        if self._single.discard(body) or self._continuing.discard(body):
            bodies = self._bodies[body.place]
            bodies.remove(body)
            if not bodies:
                del self._bodies[body.place]


class _Queue:
    """A queue of remembered bodies, the oldest first.

    There are two queues: one for bodies that continue a remembered body, and one for all others. Bodies of the second
    queue are evicted earlier, because most of them belong to no session.
    """

    def __init__(self) -> None:
        self.bodies: dict[_Body, None] = {}
        self.size = 0
        self._random = Random(0)  # noqa: S311

    def random(self) -> _Body:
        """A random body, to be evicted. A random choice is needed if several sessions take turns and their bodies do
        not all fit. If the oldest body were evicted each time, no such session would find its last body."""
        return next(islice(self.bodies, self._random.randrange(len(self.bodies)), None))

    def add(self, body: _Body) -> None:
        self.bodies[body] = None
        self.size += body.size

    def discard(self, body: _Body) -> bool:
        """Remove `body`. Returns False if the queue does not contain it."""
        if body not in self.bodies:
            return False
        del self.bodies[body]
        self.size -= body.size
        return True


def _place(conversation: tuple[str, str], raw: bytes, at: int) -> _Place:
    return *conversation, at, raw[at : at + _PROBE]


def _places(raw: bytes, quoted: bytes) -> Iterator[tuple[int, int]]:
    """Yield places in `raw` at which the value of the key `quoted` is an array. A place is (position of the key,
    position of the first item). Only the first places are yielded."""
    key, arrays = -1, 0
    for _ in range(_TRIES):
        key = raw.find(quoted, key + 1)
        if key < 0:
            return
        at = skip_blanks(raw, key + len(quoted))
        if raw[at : at + 1] == b":" and raw[at := skip_blanks(raw, at + 1)] == b"["[0]:
            yield key, skip_blanks(raw, at + 1)
            arrays += 1
            if arrays == _ARRAYS:
                return


def _ends_of(raw: bytes, at: int, items: list[Any], *, first: bool) -> list[int]:
    """The position after each of `items`, which are expected in `raw` from `at` on. Empty if they are not there.
    `first`: whether the item at `at` has no comma before it."""
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
    """The position after `item`, which is expected at `at`; 0 if another value is there."""
    written = orjson.dumps(item)  # most clients write JSON as orjson does
    if raw.startswith(written, at):
        return at + len(written)
    part = raw[at : at + _WIDER * len(written) + _BLANKS]
    try:
        end = value_end(part, 0)
        return at + end if orjson.loads(part[:end]) == item else 0
    except ValueError:  # the value is longer
        return 0


def _rest_of(rest: bytes, name: str) -> tuple[dict[str, Any], list[Any]] | None:
    """Parse `rest`, a body without the known items. Returns its fields, and the items in it. None if `rest` has a
    second field `name`, or is not a valid body."""
    try:
        fields = load_object(rest)
    except BadRequest:
        return None
    items = fields.get(_KEY)
    return (fields, items) if type(items) is list and name not in fields else None
