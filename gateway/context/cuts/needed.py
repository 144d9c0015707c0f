"""Finds which tool outputs of one session are probably still needed.

An output is still needed if a later call repeated one of its lines, as an edit of a file does. The names of an output
are the paths, addresses and file names in the call that produced it. An output is not needed any more if later outputs
with one of these names repeated nearly all of its lines.

The lines of an output are read only when a decision depends on them. Reading all lines takes most of the time for a
session that this worker does not know. Each fact is stored with the index of the first turn after which it is true. So
decisions do not depend on when a fact was found.
"""

from __future__ import annotations

from gateway.context.cuts.outputs import Output, lines_in
from gateway.domain.request import Turn

NEVER = 1 << 60
"""Stands for the index of a turn that does not exist."""
_REPEATED = 0.9
"""If later outputs repeat at least this share of the lines of an output, the output is no longer needed."""


class Needed:
    """The tool outputs of one session, in their order, and the lines of the session's tool calls."""

    def __init__(self) -> None:
        self._all: list[Output] = []
        self._named: dict[str, list[int]] = {}
        """Name → numbers of the outputs with this name."""
        self._calls: list[tuple[int, frozenset[int]]] = []
        """(Index of a turn, lines of its calls)."""

    def call(self, place: int, calls: str) -> None:
        """Add the tool calls of one turn. `place`: index of the turn. `calls`: the arguments of its calls."""
        if self._all and (lines := lines_in(calls)):
            self._calls.append((place, lines))

    def add(self, output: Output) -> None:
        """Add an output. Connect it with the earlier outputs that have a name (path, address or file name) in common
        with it."""
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
        """Whether a later call repeated a line of the output.

        Also true if the output repeats a line of an earlier output that has a name (path, address or file name) in
        common with it, and a call repeated a line of that earlier output.
        """
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
        """Set `output.inherits`: whether the output repeats a line of an earlier output that is still needed. There is
        no recursion, because a client may send a chain of a thousand outputs."""
        waiting = [output]
        while waiting:
            found = self._inherited(waiting[-1], turns)
            if isinstance(found, Output):
                waiting.append(found)
            else:
                waiting.pop().inherits = found

    def _inherited(self, output: Output, turns: list[Turn]) -> bool | Output:
        """Whether the output repeats a line of an earlier output, and a call repeated a line of that earlier output. If
        the same fact must first be found for an earlier output, returns that earlier output."""
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
        """Index of the turn after which later outputs have repeated nearly all lines of the output. `NEVER` if there is
        none before the turn with index `end`."""
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
