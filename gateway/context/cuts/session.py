"""Decides which old tool outputs of one session are left out (a cut). The decision uses only the history of this
session.

A cut changes the prompt from the first output that is left out. So the provider must write everything after this
position into its cache again. Later requests then read fewer tokens from the cache. A cut is made only if the
expected savings are several times its cost. Therefore several outputs are left out together, and an output that was
left out stays left out, byte for byte.

The decisions can be repeated from the history. For each position at which the client sent a request, the rule reads
only the turns before this position. Therefore every worker makes the same cuts, and a worker that does not know the
session can compute them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter

from gateway.context.cuts import recall
from gateway.context.cuts.needed import Needed
from gateway.context.cuts.outputs import Output, answer_of, names_in, omitted, tokens_of
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
_ENTRY_REQUESTS = 100
"""Number of requests after which an entry in the cache of GPT-5.6 has expired, if no later request read it. In the
recorded sessions, 96 % of the entries were alive after 10 requests, 71 % after 40, 49 % after 60 and 8 % after 100."""
_RECENT = 40
"""For GPT-5.6, one of the considered cuts begins at most this number of requests back, where an entry is probably
alive."""
_QUOTED = 8
"""A quotation has at most the tokens that are left out, divided by this number."""


@dataclass(frozen=True, slots=True)
class _Caution:
    """Numbers that decide when a cut is made. They depend on how a provider caches prompts. All were chosen on one
    half of the recorded sessions.
    """

    multiple: float
    """A cut is made only if its expected savings are more than this number times its cost."""
    share: float
    """Maximum of the net cost of all cuts (their cost less their savings so far), as a share of the cost of the session
    so far."""
    cold_tool: float
    """Share of requests with tool results before which the provider's cache had expired."""
    cold_user: float
    """Share of requests with words of the user before which the provider's cache had expired."""


_CAUTION: Mapping[str, _Caution] = {
    "marks": _Caution(5.0, 0.04, 0.006, 0.23),
    "newest": _Caution(3.0, 0.16, 0.001, 0.04),  # entries live for 30 minutes
    "common": _Caution(5.0, 0.04, 0.006, 0.23),
}
"""Kind of cache (`CacheRules.kind`) → when a cut is made."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The parts that are left out of one request."""

    texts: dict[int, str] = field(default_factory=dict)
    """Index of a turn → the text that is sent in its place: a shorter output of a tool, or words of the user with a
    quotation of outputs that were left out."""
    no_thinking: frozenset[int] = frozenset()
    """Indexes of the turns whose thinking blocks are left out."""
    anchor: int = 0
    """Number of turns before the position at which the next cut will begin. The provider's cache should keep these
    turns."""
    tokens: int = 0
    """Number of tokens that are left out."""
    repeats: dict[int, int] = field(default_factory=dict)
    """Index of a turn whose text was replaced by a note about a repeated error → index of the turn with the error."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """The last cut that was considered. `pays`: whether the cut was made.

    The unit of `cost` and `gain` is one input token at the price of uncached input.
    """

    outputs: int = 0
    saved: int = 0
    """Number of tokens that the cut leaves out."""
    cost: float = 0.0
    gain: float = 0.0
    pays: bool = False


NO_CUT = Cut()
Shape = tuple[int, int, tuple[str, ...]]
"""(Characters of a turn's text, hash of the text, ids of its tool calls or results). Turns with other texts have other
shapes, so a text of one conversation is never sent in another one that has the same ids."""


def shapes_of(turns: list[Turn]) -> list[Shape]:
    return [(len(turn.text), hash(turn.text), turn.calls or turn.results) for turn in turns]


def first_request(turns: list[Turn]) -> int:
    """Number of turns in the session's first request."""
    return next((place for place, turn in enumerate(turns) if turn.role == "assistant" and place), len(turns))


_tokens = attrgetter("tokens")


class SessionCuts:
    """The facts that were read from the history of one session. The object must not be used by several threads at the
    same time."""

    def __init__(self, rules: CacheRules, factor: float, weighs_all: bool = False) -> None:
        """`weighs_all`: whether `weighed` is exact also for a cut that is too expensive. Deciding then takes longer,
        but the cuts are the same."""
        self._weighs_all = weighs_all
        self._rules, self._factor = rules, factor
        self._weighed = 0, 0, 0.0, 0.0, False
        self._shapes: list[Shape] = []
        self._tokens: list[int] = []
        """Number of tokens of each turn, in the form in which the turn is sent."""
        self._thinking: dict[int, int] = {}
        """Index of a turn → number of tokens of its thinking blocks."""
        self._outputs: list[Output] = []
        """The outputs that were not left out."""
        self._needed = Needed()
        self._calls = ""
        """Arguments of the newest tool calls."""
        self._names: frozenset[str] | None = None
        """Names in `_calls`; None if `_calls` was not searched yet."""
        self._texts: dict[int, str] = {}
        self._left: dict[int, str] = {}
        """Index of a turn whose output was left out → a name in its call. Outputs that later outputs repeated are not
        included."""
        self._prose: dict[int, bool] = {}
        """Index of a turn → whether its output, which was left out, is mostly prose."""
        self._no_thinking: set[int] = set()
        self._spoken, self._last_thinking, self._answered = 0, -1, True
        self._requests = self._total = self._gone = self._anchor = self._end = 0
        self._before = self._fixed = 0
        self._spent = self._credit = 0.0

    @property
    def weighed(self) -> Weighed:
        """The last cut that was considered."""
        return Weighed(*self._weighed)

    @property
    def turns(self) -> int:
        return len(self._shapes)

    def follows(self, shapes: list[Shape]) -> bool:
        """Whether a history continues the history of this session. `shapes`: the shapes of the turns of the new
        history."""
        return shapes[: len(self._shapes)] == self._shapes

    def cut(self, request: CompletionRequest, shapes: list[Shape], fixed: int) -> Cut:
        """Read the new turns, and return the cut for this request. `shapes`: the shapes of the turns. `fixed`: number
        of tokens before the conversation."""
        self._fixed = self._fixed or fixed
        for place in range(len(self._shapes), len(request.turns)):
            turn = request.turns[place]
            if turn.role == "assistant" and not self._answered:
                self._asked(request)
            self._answered = turn.role == "assistant"
            self._read(request, place, turn)
        self._shapes = shapes
        if not self._answered:  # the client sent the request at this position; the next turn is the model's answer
            self._asked(request)
            self._answered = True
        return Cut(dict(self._texts), frozenset(self._no_thinking), self._anchor, self._gone)

    def _read(self, request: CompletionRequest, place: int, turn: Turn) -> None:
        calls, thinking = "", None
        if turn.calls or (turn.role == "assistant" and turn.asides):
            calls, thinking = answer_of(request, turn)
        tokens = round(tokens_of(turn, calls) * self._factor)
        if thinking is not None:
            tokens += round(thinking * self._factor)
            if self._rules.kind == "marks":  # only Anthropic's models verify the text before their thinking
                self._thinking[place] = round(thinking * self._factor)
                self._last_thinking = place
        if calls:
            self._calls, self._names = calls, None
            self._needed.call(place, calls)
        if turn.role == "tool":
            if tokens >= _LEAST and not (turn.images or turn.files or turn.instructs):
                if self._names is None:
                    self._names = names_in(self._calls)
                output = Output(place, self._requests, self._end, tokens, self._names)
                self._needed.add(output)
                self._outputs.append(output)
        elif turn.role == "user" and not turn.results:
            self._spoken = place
        self._tokens.append(tokens)
        self._total += tokens

    def _asked(self, request: CompletionRequest) -> None:
        """Decide whether to cut at this position of the history. Called for each position at which the client sent
        a request.
        """
        rules, total = self._rules, self._fixed + self._total
        self._spent += rules.read * self._before + rules.write * max(0, total - self._before)
        self._credit += rules.read * self._gone
        self._before = total
        self._requests += 1
        self._end = len(self._tokens)
        self._cut_now(request)
        self._quote_for(request)
        self._move_anchor(request.turns)

    def _quote_for(self, request: CompletionRequest) -> None:
        """If the newest turn is a question of the user, append a quotation of the left-out sentences that may
        answer it.
        """
        place = len(self._tokens) - 1
        if not self._left or self._spoken != place or not (asked := recall.questions_in(request.turns[place].text)):
            return
        outputs = []
        for at, name in sorted(self._left.items()):
            text = request.turns[at].text
            if at not in self._prose:
                self._prose[at] = recall.is_prose(text)
            outputs.append(recall.LeftOut(name, text, self._prose[at]))
        if quoted := recall.quotation(asked, outputs, min(recall.MOST_TOKENS, self._gone // _QUOTED)):
            self._texts[place] = f"{request.turns[place].text}\n\n{quoted}"
            self._shrink(place, -round(estimate(quoted) * self._factor))

    def _move_anchor(self, turns: list[Turn]) -> None:
        """Move the anchor to the first output that may be left out later. The anchor is the position up to which the
        gateway marks the prompt for the provider's cache.

        The anchor only moves forwards, because a provider forgets a part of the prompt that a request did not mark.
        """
        end = self._end
        for output in self._outputs:
            if output.end >= end:
                break
            if self._needed.may_go(output, turns):
                end = output.end
                break
        if end > self._anchor:
            self._anchor = end

    def _cut_now(self, request: CompletionRequest) -> None:
        if self._last_thinking > self._spoken:
            return  # the model's signature of this thinking covers everything before it
        oldest = self._requests - AGE
        old = list(takewhile(lambda output: output.request < oldest, self._outputs))
        if not old:
            return
        if self._weighs_all:
            old = [output for output in old if self._needed.may_go(output, request.turns)]
        choices = [old, [output for output in old if output.place >= self._anchor]]
        if self._rules.kind == "newest":
            choices.append([output for output in old if output.request > self._requests - _RECENT])
        best: tuple[float, list[Output], float] | None = None
        for outputs in choices:
            if (found := self._worth_of(outputs, request.turns)) is not None and (best is None or found[0] > best[0]):
                best = found[0], outputs, found[1]
        if best is not None:
            self._leave_out(request, best[1], best[2])

    def _worth_of(self, outputs: list[Output], turns: list[Turn]) -> tuple[float, float] | None:
        """The expected savings and the cost of leaving out `outputs`; None if it would not save enough. Outputs that
        may not be left out are removed from the list.

        With more outputs, a cut at the same position saves more. Therefore the examination ends when even all remaining
        outputs together do not save enough. The largest outputs are examined first.
        """
        while outputs and not self._needed.may_go(outputs[0], turns):
            del outputs[0]
        if not outputs:
            return None
        kept = self._kept(outputs[0])
        saved = sum([output.tokens for output in outputs]) - _STAYS * len(outputs) + self._thinking_from(outputs[0])
        found = self._worth(len(outputs), saved, *kept)
        for output in sorted(outputs[1:], key=_tokens, reverse=True):
            if found is None:
                return None
            if not self._needed.may_go(output, turns):
                outputs.remove(output)
                saved -= output.tokens - _STAYS
                found = self._worth(len(outputs), saved, *kept)
        return found

    def _thinking_from(self, first: Output) -> int:
        """Number of thinking tokens that are left out by a cut that begins at `first`."""
        sizes = self._thinking.items()
        return sum([size for place, size in sizes if first.place < place and place not in self._no_thinking])

    def _kept(self, first: Output) -> tuple[int, float]:
        """Return two values for a cut that begins at `first`: the tokens of the conversation that the provider's
        cache then keeps, and the probability that it keeps them.
        """
        kind = self._rules.kind
        if kind == "marks":
            return (sum(self._tokens[: self._anchor]) if first.place >= self._anchor else 0), 1.0
        if kind == "common":
            return sum(self._tokens[: first.place]), 1.0
        return sum(self._tokens[: first.end]), max(0.0, 1 - (self._requests - first.request) / _ENTRY_REQUESTS)

    def _worth(self, outputs: int, saved: int, kept: int, alive: float) -> tuple[float, float] | None:
        """Return two values for a cut: the expected savings less the cost, and the cost. The unit is one token of
        uncached input. None if the cut would not save enough.

        `outputs`: number of outputs that are left out. `saved`: number of tokens that are left out. `kept`: tokens of
        the conversation that the provider's cache then keeps. `alive`: probability that it keeps them.
        """
        rules = self._rules
        whole = self._total + (0 if rules.kind == "marks" else self._fixed)
        after = alive * (self._total - kept) + (1 - alive) * whole
        caution = _CAUTION[rules.kind]
        cold = caution.cold_user if self._spoken == len(self._tokens) - 1 else caution.cold_tool
        warm = rules.write * (after - saved) - rules.read * after
        cost = (1 - cold) * warm - cold * rules.write * saved
        gain = rules.read * saved * min(self._requests, _MOST_REMAINING)
        pays = gain > caution.multiple * cost and cost - self._credit <= caution.share * self._spent
        self._weighed = outputs, saved, cost, gain, pays
        return (gain - cost, cost) if pays else None

    def _leave_out(self, request: CompletionRequest, going: list[Output], cost: float) -> None:
        for output in going:
            text = omitted(request.turns[output.place].text, output.tokens)
            self._texts[output.place] = text
            self._shrink(output.place, output.tokens - round(estimate(text) * self._factor))
            output.gone = True
            if not self._needed.is_repeated(output, request.turns):
                self._left[output.place] = min(output.names, default="")
        first = going[0].place
        for place, size in self._thinking.items():
            if place > first and place not in self._no_thinking:
                self._no_thinking.add(place)
                self._shrink(place, size)
        self._credit -= cost
        self._outputs = [output for output in self._outputs if not output.gone]
        if self._rules.kind != "marks":  # only the end of the request is written to the cache
            self._anchor = self._end
        self._before = self._fixed + self._total

    def _shrink(self, place: int, tokens: int) -> None:
        self._tokens[place] -= tokens
        self._total -= tokens
        self._gone += tokens
