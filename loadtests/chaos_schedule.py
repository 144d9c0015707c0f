"""Which part of the gateway dies or freezes when: drawn from the seed, so that a run can be had again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Literal

Victim = Literal["worker", "supervisor", "state", "database"]
Deed = Literal["kill", "freeze"]

VICTIMS: tuple[Victim, ...] = ("worker", "supervisor", "state", "database")
SHORTEST_FREEZE_S, LONGEST_FREEZE_S = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Blow:
    """`deed` to `victim`, once so many requests have ended."""

    after: int
    victim: Victim
    deed: Deed
    seconds: float = 0.0
    """How long it stays frozen; some are frozen before they are killed, in the middle of what they do."""
    chance: float = 0.0
    """Which of several, in [0, 1)."""


def schedule(seed: int, requests: int, kills: int, freezes: int) -> list[Blow]:
    """`kills` and `freezes` of every victim at random times, none in the first or last twentieth of the requests."""
    draw = random.Random(f"blows {seed}")
    deeds: tuple[tuple[Deed, int], ...] = (("kill", kills), ("freeze", freezes))
    blows = []
    for victim, (deed, times) in product(VICTIMS, deeds):
        for _ in range(times):
            after = int(requests * draw.uniform(0.05, 0.95))
            seconds = draw.uniform(SHORTEST_FREEZE_S, LONGEST_FREEZE_S)
            if deed == "kill":
                seconds = draw.choice((0.0, seconds / LONGEST_FREEZE_S))
            blows.append(Blow(after, victim, deed, seconds, draw.random()))
    return sorted(blows, key=lambda blow: blow.after)
