"""Draws a day from the mixture: which question is asked when. The same seed and split draw the same day."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from gateway.context.bill.sessions import Session
from gateway.context.count import family_factor
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import SHORT_S
from loadtests import day_questions
from loadtests.day_questions import USUAL_TOKENS, Question

SESSION_SHARE = 0.5
"""The most that one session may cost, as a share of the dollars for agents."""
MOST_OVER = 1.1
"""The most that all sessions may cost, relative to the dollars for agents."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders of recorded data. None: a small set of our own."""

    routing: Path | None = None
    context: Path | None = None
    pairs: Path | None = None
    traces: Path | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the day. `at`: seconds from its beginning. Agents' requests wait for the one before."""

    at: float
    stratum: str
    question: Question
    repeats: bool = False


@dataclass(slots=True)
class Day:
    singles: list[Asked] = field(default_factory=list)
    """Sorted by time."""
    sessions: list[list[Asked]] = field(default_factory=list)

    @property
    def questions(self) -> Iterator[Question]:
        for asked in (*self.singles, *(one for session in self.sessions for one in session)):
            yield asked.question


class Source:
    """All questions of one split."""

    def __init__(self, folders: Folders, mixture: Mapping[str, Any], split: int) -> None:
        """`split`: 0 or 1. Each question and each session belongs to one of the two. Raises OSError."""
        self._mixture, self.split = mixture, split
        self._folders = folders
        self._texts = day_questions.pages(folders.context)[split::2]
        self._pairs = day_questions.paraphrases(folders.pairs)
        self.sessions = day_questions.sessions(folders.context)[split::2]
        self.pools = {pool: self._pool(pool) for pool in day_questions.SETS}

    def _pool(self, pool: str) -> list[Question]:
        models = self._mixture["pools"][pool]
        if self._folders.routing is None:
            found = day_questions.made_up(pool, models, 0)
        else:
            found = day_questions.recorded(self._folders.routing, pool, models)
        return found[self.split :: 2]

    def of(self, stratum: str, draw: random.Random) -> Iterator[Question]:
        """The stratum's questions in random order, again and again."""
        match stratum:
            case "spanish_portuguese":
                pairs = self._pairs[self.split * 2 :: 4] + self._pairs[self.split * 2 + 1 :: 4]
                return cycle(draw.sample(pairs, len(pairs)))
            case "long_documents":
                found = list(day_questions.documents(self._texts))
                return cycle(draw.sample(found, len(found)))
            case "embeddings":
                return day_questions.embedded(self._texts, draw.randrange(10**6))
        return _in_turn(
            [draw.sample(self.pools[pool], len(self.pools[pool])) for pool in self._mixture["strata"][stratum]]
        )


def _in_turn(pools: Sequence[Sequence[Question]]) -> Iterator[Question]:
    for questions in zip(*map(cycle, pools), strict=True):
        yield from questions


def drawn(
    source: Source,
    mixture: Mapping[str, Any],
    prices: Mapping[str, Price],
    seed: int,
    folders: Folders,
    scale: float = 1.0,
) -> Day:
    """The day of this seed, with `scale` times the mixture's dollars."""
    draw = random.Random(f"day {seed}")
    usd = {name: share * mixture["usd"] * scale for name, share in mixture["shares"].items()}
    day, asked = Day(), []
    for stratum in mixture["strata"]:
        if stratum != "agents":
            asked += _singles(stratum, source, mixture, prices, usd[stratum], draw)
    draw.shuffle(asked)
    times = arrivals(folders.traces, len(asked), mixture["seconds"] * scale, draw)
    for at, one in zip(times, asked, strict=True):
        day.singles.append(Asked(at, one.stratum, one.question, one.repeats))
    model = mixture["pools"]["agents"][0]
    spent = 0.0
    for session in draw.sample(source.sessions, len(source.sessions)):
        found = [Asked(0.0, "agents", one) for one in day_questions.turns(session, model)]
        cost = _session_usd(session, found, prices[model], model)
        if cost <= SESSION_SHARE * usd["agents"] and spent + cost <= MOST_OVER * usd["agents"]:
            day.sessions.append(found)
            spent += cost
    return day


def _singles(
    stratum: str,
    source: Source,
    mixture: Mapping[str, Any],
    prices: Mapping[str, Price],
    usd: float,
    draw: random.Random,
) -> list[Asked]:
    """Questions that cost `usd` on their references. A share of them repeats an earlier one."""
    found: list[Asked] = []
    fresh, spent = source.of(stratum, draw), 0.0
    while spent < usd:
        repeats = bool(found) and draw.random() < mixture["repeats"]
        question = draw.choice(found).question if repeats else next(fresh)
        found.append(Asked(0.0, stratum, question, repeats))
        spent += usual_usd(question, mixture["pools"][question.pool][0], prices)
    return found


def usual_usd(question: Question, model: str, prices: Mapping[str, Price]) -> float:
    """Dollars of one call without a prompt cache; four characters count as a token."""
    characters = sum(map(len, question.texts)) + sum(len(str(one.get("content"))) for one in question.messages)
    output = 0 if question.texts else question.output.get(model, USUAL_TOKENS)
    return prices[model].cost(Usage(characters // 4, output_tokens=output)) / 1e12


def _session_usd(session: Session, asked: Sequence[Asked], price: Price, model: str) -> float:
    """Roughly: everything is read from the cache, and what is new is written to it. After a pause of more than five
    minutes everything is written."""
    hidden, before = session.hidden_tokens, day_questions.shared_tokens(session)
    cost = 0
    last = 0.0
    for one in asked:
        characters = sum(len(str(each.get("content"))) for each in one.question.messages)
        size = hidden + round(characters / 4 * family_factor(model))
        at = one.question.at or 0.0
        grown = size >= before and at - last <= SHORT_S
        fresh, last = size - before if grown else size, at
        usage = Usage(0, size - fresh, fresh, output_tokens=one.question.output[model])
        cost, before = cost + price.cost(usage), size
    return cost / 1e12


def arrivals(traces: Path | None, count: int, seconds: float, draw: random.Random) -> list[float]:
    """Ascending times within `seconds`: a random part of the recorded arrivals, else exponential gaps."""
    if traces is None:
        times = [draw.random() for _ in range(count)]
    else:
        with (traces / "azure_2023_conv.csv").open() as lines:
            recorded = [float(row["t_ms"]) for row in islice(csv.DictReader(lines), 10**6)]
        start = draw.randrange(max(1, len(recorded) - count))
        times = [one - recorded[start] for one in recorded[start : start + count]]
        times += [draw.uniform(0, times[-1]) for _ in range(count - len(times))]
    last = max(times, default=0.0) or 1.0
    return sorted(one / last * seconds for one in times)
