"""Two naive ways to keep a budget, simulated: a token a tick of every open stream, the same lengths and clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from loadtests import budget
from loadtests.budget_stage import MAX_TOKENS, lengths

if TYPE_CHECKING:
    from loadtests.budget import Options, Outcome

Way = Literal["count after", "reserve max_tokens"]
_RETRY_TICKS = 8
"""A refused client asks again after so many."""


@dataclass(slots=True)
class _Stream:
    length: int
    sent: int = 0


@dataclass(slots=True)
class _World:
    """`settled`: what the way believes was spent."""

    options: Options
    way: Way
    prompt: int
    settled: int = 0
    delivered: int = 0
    answers: int = 0
    whole: int = 0
    refusals: int = 0
    false: int = 0
    open: list[_Stream] = field(default_factory=list)
    curve: list[tuple[float, int, int]] = field(default_factory=list)

    def admits(self) -> bool:
        if self.way == "count after":
            return self.settled < self.options.budget
        reserved = len(self.open) * (self.prompt + MAX_TOKENS)
        return self.settled + reserved + self.prompt + MAX_TOKENS <= self.options.budget

    def headroom(self) -> int:
        return self.options.budget - self.delivered - sum(stream.length - stream.sent for stream in self.open)

    def tick(self) -> int:
        """Every stream gets its next token; how many came to their end."""
        ended = 0
        for stream in list(self.open):
            if stream.sent < stream.length:
                stream.sent, self.delivered = stream.sent + 1, self.delivered + 1
            if stream.sent == stream.length:
                self.open.remove(stream)
                self.settled += self.prompt + stream.length
                ended, self.whole = ended + 1, self.whole + 1
        return ended


def outcomes(options: Options, prompt: int) -> list[Outcome]:
    """Of both ways, without and with a worker killed."""
    ways: tuple[Way, ...] = ("count after", "reserve max_tokens")
    return [_outcome(options, way, prompt, kill=kill) for kill in (False, True) for way in ways]


def _outcome(options: Options, way: Way, prompt: int, *, kill: bool) -> Outcome:
    world, length = _World(options, way, prompt), lengths(options.seed)
    ready = [0] * options.streams
    """Ticks at which the clients that wait ask."""
    number = ticks = 0
    killing = kill
    while True:
        asking, ready = [at for at in ready if at <= ticks], [at for at in ready if at > ticks]
        refused = 0
        for _ in asking:
            if world.admits():
                world.open.append(_Stream(length(number)))
                number, world.answers, world.delivered = number + 1, world.answers + 1, world.delivered + prompt
            else:
                refused += 1
                world.refusals += 1
                world.false += world.headroom() >= budget.FALSE_SHARE * options.budget
        ready += [ticks + _RETRY_TICKS] * refused
        world.curve.append((ticks * options.pace_ms / 1000, world.delivered, len(world.open)))
        if not world.open and refused:
            break
        ready += [ticks + 1] * world.tick()
        if kill and world.delivered >= budget.KILL_SHARE * options.budget:
            kill = False
            lost = world.open[:: options.workers]  # what a third of the streams had taken is known to nobody
            world.open = [stream for stream in world.open if stream not in lost]
            ready += [ticks + 1] * len(lost)
        ticks += 1
    return _verdict(world, options, killed=killing)


def _verdict(world: _World, options: Options, *, killed: bool) -> Outcome:
    return budget.Outcome(
        f"{world.way}, a worker killed" if killed else world.way,
        (world.delivered - options.budget) / options.budget,
        world.settled / options.budget,
        world.false,
        world.refusals,
        world.answers,
        world.whole,
        0,
        world.delivered - world.settled,
        curve=world.curve,
        judged=False,
    )
