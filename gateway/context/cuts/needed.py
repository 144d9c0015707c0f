"""Finds which tool outputs of one session are probably still needed.

An output is still needed if a later call repeated one of its lines, as an edit of a file does. It is not needed any
more if later outputs with one of its names repeated nearly all of its lines.

The lines of an output are read only when a decision depends on them, because reading all lines takes most of the time
for a session that this worker does not know. So each fact is kept with the turn from which on it is true. It is then
the same whether it was found at once or many requests later.
"""

from __future__ import annotations

from gateway.context.cuts.outputs import Output, lines_in
from gateway.domain.request import Turn

NEVER = 1 << 60
"""Stands for the index of a turn that does not exist."""
_REPEATED = 0.9
"""If later outputs repeat at least this share of the lines of an output, the output is no longer needed."""


class Needed:
    """The outputs of one session, in their order, and the lines of its calls."""

    def __init__(self) -> None:
        self._all: list[Output] = []
        self._named: dict[str, list[int]] = {}
        """Name → numbers of the outputs with this name."""
        self._calls: list[tuple[int, frozenset[int]]] = []
        """(Index of a turn, lines of its calls)."""

    def call(self, place: int, calls: str) -> None:
        """Add the arguments of the calls in the turn with this index."""
        if self._all and (lines := lines_in(calls)):
            self._calls.append((place, lines))

    def add(self, output: Output) -> None:
        """Add an output, and connect it with the earlier outputs that have one of its names."""
        number, earlier = len(self._all), set[int]()
        for name in output.names:
            numbers = self._named.setdefault(name, [])
            earlier.update(numbers)
            numbers.append(number)
        for each in earlier:
            if not self._all[each].gone:
                self._all[each].later.append(number)
                output.earlier.append(each)
        self._all.append(output)

    def may_go(self, output: Output, turns: list[Turn]) -> bool:
        """Whether the session no longer needs an output. `turns`: the turns of a request of the session."""
        if output.repeated_at < NEVER or not (output.quoted or self._is_quoted(output, turns)):
            return True
        return output.compared < len(output.later) and self.is_repeated(output, turns)

    def is_repeated(self, output: Output, turns: list[Turn]) -> bool:
        """Whether later outputs repeated nearly all lines of an output."""
        return self._repeated_at(output, NEVER, turns) < NEVER

    def _is_quoted(self, output: Output, turns: list[Turn]) -> bool:
        """Whether a later call repeated a line of the output. Also true if the output repeats a line of an earlier
        output with one of its names that was quoted before."""
        if self._quoted_at(output, turns) == NEVER:
            self._inherit(output, turns)
            output.quoted = bool(output.inherits)
        else:
            output.quoted = True
        return output.quoted

    def _quoted_at(self, output: Output, turns: list[Turn]) -> int:
        """Index of the first turn with a call that repeats a line of the output, or `NEVER`."""
        if output.quoted_at == NEVER and output.searched < len(self._calls):
            lines = _lines(output, turns)
            for place, called in self._calls[output.searched :]:
                if place > output.place and not called.isdisjoint(lines):
                    output.quoted_at = place
                    break
            output.searched = len(self._calls)
        return output.quoted_at

    def _inherit(self, output: Output, turns: list[Turn]) -> None:
        """Set `output.inherits`. This uses no recursion, because a client may write a chain of a thousand outputs."""
        waiting = [output]
        while waiting:
            found = self._inherited(waiting[-1], turns)
            if isinstance(found, Output):
                waiting.append(found)
            else:
                waiting.pop().inherits = found

    def _inherited(self, output: Output, turns: list[Turn]) -> bool | Output:
        """Whether the output repeats a line of an earlier output that was quoted before. If this depends on the same
        fact about an earlier output, returns that output."""
        if output.inherits is not None:
            return output.inherits
        while output.earlier:
            before = self._all[output.earlier[-1]]
            lines = _lines(before, turns)
            if not lines or not lines.isdisjoint(_lines(output, turns)):
                quoted = self._quoted_at(before, turns) < output.place
                if not quoted and before.inherits is None:
                    return before
                if (quoted or before.inherits) and self._repeated_at(before, output.place, turns) >= output.place:
                    output.earlier.clear()
                    return True
            output.earlier.pop()
        return False

    def _repeated_at(self, output: Output, end: int, turns: list[Turn]) -> int:
        """Index of the turn with which the later outputs repeated nearly all lines of an output, or `NEVER`. Only the
        turns before `end` are considered."""
        lines = _lines(output, turns)
        while output.repeated_at == NEVER and output.compared < len(output.later):
            after = self._all[output.later[output.compared]]
            if after.place >= end:
                break
            output.compared += 1
            repeats = _lines(after, turns)
            if lines and lines.isdisjoint(repeats):
                continue
            output.left = (lines if output.left is None else output.left) - repeats
            if len(output.left) <= (1 - _REPEATED) * len(lines):
                output.repeated_at, output.left = after.place, None
        return output.repeated_at


def _lines(output: Output, turns: list[Turn]) -> frozenset[int]:
    if output.lines is None:
        output.lines = lines_in(turns[output.place].text)
    return output.lines
