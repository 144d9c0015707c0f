"""Decides for one session which old tool outputs are left out, from its history alone.

A cut changes the prompt after its first place, so the provider writes all of that again. It pays if the cheaper reads
of the requests that probably follow are worth several times as much. So outputs are left out in batches, and what was
left out stays left out, byte for byte.

The decisions are repeated over the history: at each place where the client sent a request, the rule sees only the turns
before it. So every worker makes the same cuts, and a worker that does not know the session computes them anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.context.cuts.outputs import Output, calls_of, lines_in, names_in, omitted, thinking_of, tokens_of
from gateway.context.estimate import estimate
from gateway.domain.prompt_cache import CacheRules
from gateway.domain.request import CompletionRequest, Turn

AGE = 10
"""Requests for which an output is kept in any case."""
_LEAST = 300
"""Tokens of an output that may be left out."""
_STAYS = 100
"""Tokens of the text that stays of it, about."""
_MOST_REMAINING = 40
"""Most requests that are expected to follow. As many follow as there were before, up to this number; in the recorded
sessions 50 follow after 30 requests and 40 after 50."""
_MULTIPLE = 5.0
"""Times the cost of a cut that its expected gain must reach."""
_SHARE = 0.04
"""Most that all cuts together may have cost more than they saved so far, as a share of what the session cost."""
_COLD_USER, _COLD_TOOL = 0.23, 0.006
"""Share of requests with words of the user, and of requests with tool results, before which the cache had expired."""
_REPEATED = 0.9
"""Share of an output's lines that later outputs repeat, from which on it is not needed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left out of one request."""

    texts: dict[int, str] = field(default_factory=dict)
    """Place of a turn → the text that stays of it."""
    no_thinking: frozenset[int] = frozenset()
    """Places of the turns without their thinking blocks."""
    anchor: int = 0
    """Number of turns before the place where the next cut will begin; the cache should keep them."""
    tokens: int = 0
    """Tokens that are left out."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Cost and gain of the cut that was considered last, in tokens of plain input."""

    outputs: int = 0
    saved: int = 0
    """Tokens that it leaves out."""
    cost: float = 0.0
    gain: float = 0.0
    pays: bool = False


NO_CUT = Cut()


def first_request(turns: list[Turn]) -> int:
    """Number of turns in the session's first request."""
    return next((place for place, turn in enumerate(turns) if turn.role == "assistant" and place), len(turns))


class SessionCuts:
    """The history of one session, as far as it was read. Not for several threads at once."""

    def __init__(self, rules: CacheRules, factor: float) -> None:
        self._rules, self._factor = rules, factor
        self.weighed = Weighed()
        self._lengths: list[int] = []
        self._tokens: list[int] = []
        """Tokens of each turn as it is sent."""
        self._thinking: dict[int, int] = {}
        """Place of a turn → tokens of its thinking blocks."""
        self._outputs: list[Output] = []
        self._names: frozenset[str] = frozenset()
        self._texts: dict[int, str] = {}
        self._no_thinking: set[int] = set()
        self._spoken, self._answered = 0, True
        self._requests = self._total = self._gone = self._anchor = self._end = 0
        self._before = self._fixed = 0
        self._spent = self._credit = 0.0

    @property
    def turns(self) -> int:
        return len(self._lengths)

    def follows(self, lengths: list[int]) -> bool:
        """Whether a history of turns with these lengths continues this one."""
        return lengths[: len(self._lengths)] == self._lengths

    def cut(self, request: CompletionRequest, lengths: list[int], fixed: int) -> Cut:
        """Read the new turns, and return the cut of this request. `fixed`: tokens before the conversation."""
        self._fixed = self._fixed or fixed
        for place in range(len(self._lengths), len(request.turns)):
            turn = request.turns[place]
            if turn.role == "assistant" and not self._answered:
                self._asked(request)
            self._answered = turn.role == "assistant"
            self._read(request, place, turn)
        self._lengths = lengths
        if not self._answered:  # the client sent the request here; the next turn is the model's
            self._asked(request)
            self._answered = True
        return Cut(dict(self._texts), frozenset(self._no_thinking), self._anchor, self._gone)

    def _read(self, request: CompletionRequest, place: int, turn: Turn) -> None:
        calls = calls_of(request, turn)
        tokens = round(tokens_of(request, turn, calls) * self._factor)
        if turn.role == "assistant":
            thinking = thinking_of(request, turn)
            if thinking is not None:
                tokens += round(thinking * self._factor)
                if self._rules.kind == "marks":  # only Anthropic's models verify what precedes their thinking
                    self._thinking[place] = round(thinking * self._factor)
            if calls:
                self._names = names_in(calls)
                self._quote(lines_in(calls))
        elif turn.role == "tool" and tokens >= _LEAST and not (turn.images or turn.files or turn.instructs):
            self._add(Output(place, self._requests, self._end, tokens, self._names, lines_in(turn.text)))
        elif turn.role == "user" and not turn.results:
            self._spoken = place
        self._tokens.append(tokens)
        self._total += tokens

    def _quote(self, lines: frozenset[int]) -> None:
        for output in self._outputs:
            if not output.quoted and not lines.isdisjoint(output.lines):
                output.quoted = True

    def _add(self, output: Output) -> None:
        """Add an output. It takes the place of earlier ones whose lines it repeats."""
        output.left = set(output.lines)
        for before in self._outputs:
            if not before.repeated and not before.names.isdisjoint(output.names):
                before.left -= output.lines
                output.quoted = output.quoted or (before.quoted and not before.lines.isdisjoint(output.lines))
                before.repeated = len(before.left) <= (1 - _REPEATED) * len(before.lines)
        self._outputs.append(output)

    def _asked(self, request: CompletionRequest) -> None:
        """The client sent a request with the turns so far: decide whether to cut."""
        rules, total = self._rules, self._fixed + self._total
        self._spent += rules.read * self._before + rules.write * max(0, total - self._before)
        self._credit += rules.read * self._gone
        self._before = total
        self._requests += 1
        self._end = len(self._tokens)
        self._cut_now(request)
        self._move_anchor()

    def _move_anchor(self) -> None:
        """Move the place that the cache keeps up to the first output that may be left out later. It moves forwards
        only, because the cache forgets what is not marked."""
        ends = (output.end for output in self._outputs if not output.needed)
        self._anchor = max(self._anchor, next(ends, self._end))

    def _cut_now(self, request: CompletionRequest) -> None:
        if any(place > self._spoken for place in self._thinking):
            return  # the model signed this thinking after all that precedes it
        going = [output for output in self._outputs if self._requests - output.request > AGE and not output.needed]
        later = [output for output in going if output.place >= self._anchor]
        for outputs, kept in (later, sum(self._tokens[: self._anchor])), (going, 0):
            if outputs and (cost := self._cost(outputs, kept)) is not None:
                self._leave_out(request, outputs, cost)
                return

    def _cost(self, going: list[Output], kept: int) -> float | None:
        """What it costs to leave these outputs out, in tokens of plain input; None: it does not pay. `kept`: tokens of
        the conversation that stay in the cache."""
        rules, first = self._rules, going[0].place
        saved = sum(output.tokens - _STAYS for output in going)
        saved += sum(size for place, size in self._thinking.items() if first < place and place not in self._no_thinking)
        after = self._total - kept + (0 if rules.kind == "marks" else self._fixed)
        cold = _COLD_USER if self._spoken == len(self._tokens) - 1 else _COLD_TOOL
        warm = rules.write * (after - saved) - rules.read * after
        cost = (1 - cold) * warm - cold * rules.write * saved
        gain = rules.read * saved * min(self._requests, _MOST_REMAINING)
        pays = gain > _MULTIPLE * cost and cost - self._credit <= _SHARE * self._spent
        self.weighed = Weighed(len(going), saved, cost, gain, pays)
        return cost if pays else None

    def _leave_out(self, request: CompletionRequest, going: list[Output], cost: float) -> None:
        for output in going:
            text = omitted(request.turns[output.place].text, output.tokens)
            self._texts[output.place] = text
            self._shrink(output.place, output.tokens - round(estimate(text) * self._factor))
        first = going[0].place
        for place, size in self._thinking.items():
            if place > first and place not in self._no_thinking:
                self._no_thinking.add(place)
                self._shrink(place, size)
        self._credit -= cost
        gone = {output.place for output in going}
        self._outputs = [output for output in self._outputs if output.place not in gone]
        if self._rules.kind != "marks":  # only the end of the request is written
            self._anchor = self._end
        self._before = self._fixed + self._total

    def _shrink(self, place: int, tokens: int) -> None:
        self._tokens[place] -= tokens
        self._total -= tokens
        self._gone += tokens
