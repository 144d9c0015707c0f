"""Decides which old tool outputs of one session are left out. The decision uses only the history of this session.

A cut changes the prompt from the first output that is left out, so the provider must write everything after this
position into its cache again. Later requests then read fewer tokens from the cache. A cut is made only if the expected
savings are several times its cost. Therefore several outputs are left out together, and an output that was left out
stays left out, byte for byte.

The decisions are repeated over the history: for each position at which the client sent a request, the rule reads only
the turns before this position. Therefore every worker makes the same cuts, and a worker that does not know the session
can compute them from the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.context.cuts.outputs import Output, calls_of, lines_in, names_in, omitted, thinking_of, tokens_of
from gateway.context.estimate import estimate
from gateway.domain.prompt_cache import CacheRules
from gateway.domain.request import CompletionRequest, Turn

AGE = 10
"""Number of requests for which an output is always kept."""
_LEAST = 300
"""Minimum tokens of an output that may be left out."""
_STAYS = 100
"""Approximate number of tokens of the text that replaces an output."""
_MOST_REMAINING = 40
"""Maximum number of further requests that are expected. The expected number is the number of requests so far, up to
this maximum. In the recorded sessions, 50 requests follow after 30 requests, and 40 follow after 50."""
_MULTIPLE = 5.0
"""A cut is made only if its expected savings are more than this number times its cost."""
_SHARE = 0.04
"""Maximum of the net cost of all cuts (their cost less their savings so far), as a share of the cost of the session so
far."""
_COLD_USER, _COLD_TOOL = 0.23, 0.006
"""Share of requests before which the provider's cache had expired: first for requests with words of the user, then for
requests with tool results."""
_REPEATED = 0.9
"""If later outputs repeat at least this share of the lines of an output, the output is no longer needed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The parts that are left out of one request."""

    texts: dict[int, str] = field(default_factory=dict)
    """Index of a turn → the text that replaces its output."""
    no_thinking: frozenset[int] = frozenset()
    """Indexes of the turns whose thinking blocks are left out."""
    anchor: int = 0
    """Number of turns before the position at which the next cut will begin. The provider's cache should keep these
    turns."""
    tokens: int = 0
    """Number of tokens that are left out."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """The last cut that was considered. `cost` and `gain` are in tokens of input that is neither read from nor written
    to the cache. `pays`: whether the cut was made."""

    outputs: int = 0
    saved: int = 0
    """Number of tokens that the cut leaves out."""
    cost: float = 0.0
    gain: float = 0.0
    pays: bool = False


NO_CUT = Cut()


def first_request(turns: list[Turn]) -> int:
    """Number of turns in the session's first request."""
    return next((place for place, turn in enumerate(turns) if turn.role == "assistant" and place), len(turns))


class SessionCuts:
    """The facts that were read from the history of one session. The object must not be used by several threads at the
    same time."""

    def __init__(self, rules: CacheRules, factor: float) -> None:
        self._rules, self._factor = rules, factor
        self.weighed = Weighed()
        self._lengths: list[int] = []
        self._tokens: list[int] = []
        """Number of tokens of each turn, in the form in which the turn is sent."""
        self._thinking: dict[int, int] = {}
        """Index of a turn → number of tokens of its thinking blocks."""
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
        """Whether a history continues the history of this session. `lengths`: the lengths of the turns of the new
        history."""
        return lengths[: len(self._lengths)] == self._lengths

    def cut(self, request: CompletionRequest, lengths: list[int], fixed: int) -> Cut:
        """Read the new turns, and return the cut for this request. `lengths`: the lengths of the turns. `fixed`: number
        of tokens before the conversation."""
        self._fixed = self._fixed or fixed
        for place in range(len(self._lengths), len(request.turns)):
            turn = request.turns[place]
            if turn.role == "assistant" and not self._answered:
                self._asked(request)
            self._answered = turn.role == "assistant"
            self._read(request, place, turn)
        self._lengths = lengths
        if not self._answered:  # the client sent the request at this position; the next turn is the model's answer
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
                if self._rules.kind == "marks":  # only Anthropic's models verify the text before their thinking
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
        """Add an output of a tool. If the new output repeats the lines of earlier outputs with the same names, these
        outputs are marked as repeated."""
        output.left = set(output.lines)
        for before in self._outputs:
            if not before.repeated and not before.names.isdisjoint(output.names):
                before.left -= output.lines
                output.quoted = output.quoted or (before.quoted and not before.lines.isdisjoint(output.lines))
                before.repeated = len(before.left) <= (1 - _REPEATED) * len(before.lines)
        self._outputs.append(output)

    def _asked(self, request: CompletionRequest) -> None:
        """Decide whether to cut. Called for each position at which the client sent a request with the turns so far."""
        rules, total = self._rules, self._fixed + self._total
        self._spent += rules.read * self._before + rules.write * max(0, total - self._before)
        self._credit += rules.read * self._gone
        self._before = total
        self._requests += 1
        self._end = len(self._tokens)
        self._cut_now(request)
        self._move_anchor()

    def _move_anchor(self) -> None:
        """Move the anchor to the first output that may be left out later. The anchor is the position up to which the
        provider's cache is asked to keep the prompt. It only moves forwards, because a provider forgets a part of the
        prompt that a request did not mark."""
        ends = (output.end for output in self._outputs if not output.needed)
        self._anchor = max(self._anchor, next(ends, self._end))

    def _cut_now(self, request: CompletionRequest) -> None:
        if any(place > self._spoken for place in self._thinking):
            return  # the model's signature of this thinking covers everything before it
        going = [output for output in self._outputs if self._requests - output.request > AGE and not output.needed]
        later = [output for output in going if output.place >= self._anchor]
        for outputs, kept in (later, sum(self._tokens[: self._anchor])), (going, 0):
            if outputs and (cost := self._cost(outputs, kept)) is not None:
                self._leave_out(request, outputs, cost)
                return

    def _cost(self, going: list[Output], kept: int) -> float | None:
        """The cost of leaving out the outputs `going`, in tokens of uncached input. None if leaving them out would not
        save enough. `kept`: tokens of the conversation that stay in the provider's cache."""
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
        if self._rules.kind != "marks":  # only the end of the request is written to the cache
            self._anchor = self._end
        self._before = self._fixed + self._total

    def _shrink(self, place: int, tokens: int) -> None:
        self._tokens[place] -= tokens
        self._total -= tokens
        self._gone += tokens
