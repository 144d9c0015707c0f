"""What the clients of a chaos run ask for: a seeded mixture, the provider's part written into each request."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import orjson

MODEL = "chaos"
DEADLINE_S = 15.0
"""What every client allows its answer."""

_WEIGHTS = {"plain": 31, "stream": 43, "retry": 5, "fallback": 2, "broken": 3, "hang-up": 15, "failing": 1}
"""Few enough failures that no backend is given up for long."""
_REFUSALS = (500, 502, 503, 429)


@dataclass(frozen=True, slots=True)
class Step:
    """What the provider does at one call of a request."""

    tokens: int = 0
    """Tokens of the whole answer; of a stream, one in each chunk."""
    drip_s: float = 0.0
    """Before each chunk, or before a plain answer."""
    status: int = 200
    cut: int | None = None
    """Break off after so many tokens; -1: hang up instead of answering."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    number: int
    kind: str
    stream: bool
    steps: tuple[Step, ...]
    """One for each call that the gateway makes for it; the last one again for any more."""
    leave_after: int | None = None
    """The client hangs up after so many tokens; 0: as soon as it has asked."""

    @property
    def session(self) -> str:
        return f"ask-{self.number}"

    def body(self) -> bytes:
        told = {"number": self.number, "steps": [asdict(step) for step in self.steps]}
        content = orjson.dumps(told).decode()
        return orjson.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": self.stream})


def parse_ask(body: dict[str, Any]) -> tuple[int, list[Step]]:
    """The request's number and the provider's part, as `Ask.body` wrote them."""
    found = orjson.loads(body["messages"][-1]["content"])
    return found["number"], [Step(**step) for step in found["steps"]]


def mixture(seed: int) -> Iterator[Ask]:
    """Requests without end, the same for the same seed."""
    chance = random.Random(seed)
    for number in count():
        (kind,) = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        yield _ask(number, kind, chance)


def _ask(number: int, kind: str, chance: random.Random) -> Ask:
    stream = kind == "stream" or (kind != "plain" and chance.random() < 0.6)
    answer = Step(chance.randint(2, 30), chance.uniform(0.005, 0.06))
    steps: tuple[Step, ...]
    match kind:
        case "retry":
            steps = (_refusal(chance), answer)
        case "fallback":
            steps = (_refusal(chance), _refusal(chance), answer)
        case "broken":
            cut = Step(answer.tokens, answer.drip_s, cut=chance.randint(0, answer.tokens - 1))
            steps = (cut, answer)
        case "failing":
            steps = (_refusal(chance),)
        case _:
            steps = (answer,)
    leave = chance.randint(0, answer.tokens) if kind == "hang-up" else None
    return Ask(number, kind, stream, steps, leave)


def _refusal(chance: random.Random) -> Step:
    if chance.random() < 0.2:
        return Step(cut=-1)
    return Step(status=chance.choice(_REFUSALS))
