"""`python -m loadtests drift`: do wrong hits stay below what is allowed while what is asked drifts?

Traffic of our own: questions about fees, offices, days and phone numbers, asked in several wordings. In the middle of
the run a fifth of them come to depend on who asks, which nothing in their words tells: no verifier can refuse them,
only checked hits can find out. Serving code decides (guard, trust, index, verifier, judge); answers are scripted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import deque
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from gateway.cache.entry import Entry
from gateway.cache.keys import Question, scope
from gateway.cache.packing import Vector, pack
from gateway.cache.quality.hit_checker import HitChecker
from gateway.cache.quality.threshold import Thresholds
from gateway.cache.semantic.embedder import OnnxEmbedder
from gateway.cache.store.bodies import Stored
from gateway.dialects.openai_chat.dialect import parse
from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.protocols import FreshAnswer
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant
from loadtests.index_scale import begun

SERVICES = (
    "passport renewal", "residence permit", "marriage certificate", "driving licence", "building permit",
    "business registration", "dog licence", "parking permit", "birth certificate", "fishing licence",
)  # fmt: skip
TOWNS = (
    "Lisbon", "Porto", "Madrid", "Seville", "Lima", "Quito", "Leeds", "Bristol", "Denver", "Austin",
    "Toronto", "Perth", "Dublin", "Oslo", "Bergen", "Turin", "Genoa", "Lyon", "Ghent", "Basel",
)  # fmt: skip
ASPECTS = {
    "fee": (
        "What is the fee for a {0} in {1}?",
        "How much is the fee for a {0} in {1}?",
        "what's the fee for a {0} in {1}",
    ),
    "office": (
        "Which office handles a {0} in {1}?",
        "which office in {1} handles a {0}",
        "Which office deals with a {0} in {1}?",
    ),
    "days": (
        "How many days does a {0} take in {1}?",
        "how many days will a {0} take in {1}",
        "How many days are needed for a {0} in {1}?",
    ),
    "phone": (
        "What is the phone number for a {0} in {1}?",
        "what's the phone number for a {0} in {1}",
        "Which phone number do I call for a {0} in {1}?",
    ),
}

ALIVE = 240
"""Requests after which a stored answer is forgotten, so that hits stay about as frequent as in real traffic."""
PERSONAL = 0.2
"""Of the questions, in the middle of the run."""
DRIFTS = (0.3, 0.65)
"""Where in the run that begins and ends."""
WINDOW = 1000
_COST_PICO = 2 * 10**9


@dataclass(frozen=True)
class Asked:
    number: int
    """Of the question, whatever its wording."""
    text: str
    personal: bool
    asker: int

    @property
    def answer(self) -> str:
        """What is right for this asker."""
        seed = f"{self.number}/{self.asker if self.personal else ''}"
        return f"It is {int.from_bytes(blake2b(seed.encode(), digest_size=4).digest()) % 100_000}."


def stream(count: int, seed: int) -> list[Asked]:
    drawn = random.Random(seed)
    questions = [(words, service, town) for words in ASPECTS.values() for service in SERVICES for town in TOWNS]
    drawn.shuffle(questions)
    weights = [1 / (place + 20) for place in range(len(questions))]
    numbers = drawn.choices(range(len(questions)), weights, k=count)
    begins, ends = (int(count * share) for share in DRIFTS)
    asked = []
    for place, number in enumerate(numbers):
        words, service, town = questions[number]
        personal = begins <= place < ends and number % 100 < PERSONAL * 100
        asked.append(Asked(number, drawn.choice(words).format(service, town), personal, drawn.randrange(10**9)))
    return asked


class Vectors:
    """The packaged embedder, asked once for each text."""

    name, dimensions, max_tokens, failed, cpu_s = OnnxEmbedder.NAME, 384, 256, False, 0.0

    def __init__(self) -> None:
        self._real = OnnxEmbedder(remembered=100_000)

    async def load(self) -> None:
        await self._real.wait_ready(60)

    @property
    def ready(self) -> bool:
        return self._real.ready

    def begin(self) -> None:
        self._real.begin()

    async def embed(self, text: str, owner: str = "") -> Vector | None:
        return await self._real.embed(text, owner)

    async def aclose(self) -> None:
        await self._real.aclose()


class Right:
    """A backend that knows: implements `Shadow` for the request under way."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        return FreshAnswer(completion(self.answers[request.id]), _COST_PICO)


@dataclass
class Window:
    lookups: int = 0
    hits: int = 0
    wrong: int = 0
    exact: int = 0
    checked: int = 0
    bar: float = 0.0

    @property
    def error(self) -> float:
        return self.wrong / max(1, self.lookups)


@dataclass
class Run:
    windows: list[Window] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> float:
        return sum(each.wrong for each in self.windows) / max(1, sum(each.lookups for each in self.windows))


async def run(asked: list[Asked], vectors: Vectors, max_error: float, share: float) -> Run:
    """`share` of hits that are checked; 0: nothing is learned, as in caches with a fixed threshold."""
    level = await begun(vectors, 2**30)
    stored: dict[bytes, tuple[Asked, Stored]] = {}
    alive: deque[tuple[int, Entry]] = deque()

    async def recall(digest: bytes) -> Stored | None:
        return stored[digest][1] if digest in stored else None

    now = 0.0
    trust, right = Thresholds(share=share, clock=lambda: now, draw=random.Random(1).random), Right()
    hit_checker = HitChecker(level, trust, recall)
    hit_checker.shadow = right if share else None
    policy = Policy.model_validate({"team": "t", "cache": {"semantic": {"max_error": max_error}}})
    tenant = Tenant(Key("k", "t"), policy)
    body = orjson.dumps({"model": "auto", "messages": [{"role": "user", "content": "?"}], "temperature": 0})
    blank = parse(body, "", Controls(), {})
    made = Run()
    for place, each in enumerate(asked):
        now = float(place)  # a request a second
        if place % WINDOW == 0:
            made.windows.append(Window())
        window = made.windows[-1]
        while alive and alive[0][0] <= place - ALIVE:
            gone = alive.popleft()[1]
            level.remove(gone)
            stored.pop(gone.digest, None)
        digest = blake2b(each.text.encode(), digest_size=16).digest()
        if digest in stored:
            window.exact += 1
            continue
        request = replace(blank, id=f"r{place}")
        right.answers = {request.id: each.answer}
        look, near = await hit_checker.find(Question(b"p" * 16, each.text), tenant)
        window.lookups += 1
        if look.found is not None and look.found.digest in stored:
            first, known = stored[look.found.digest]
            window.hits += 1
            window.wrong += first.answer != each.answer
            hit_checker.gave(look.found, known, request, tenant)
        elif look.vector is not None:
            answer = Stored(completion(each.answer), Usage(10, output_tokens=5), _COST_PICO, "b", "m")
            if near is not None and share:
                hit_checker.missed(near, digest, answer.completion, "openai_chat")
            entry = Entry(digest, "t", (), 0.0, 4e9, 5, Question(b"p" * 16, each.text), pack(look.vector))
            stored[digest] = each, answer
            alive.append((place, entry))
            level.add(entry)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        window.bar = trust.bar(scope(tenant), max_error)
        window.checked = int(trust.stats()["hits_checked"])
    made.report = hit_checker.report()[0]
    await hit_checker.aclose()
    await level.aclose()
    return made


def completion(text: str) -> bytes:
    return orjson.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})


async def both(options: argparse.Namespace) -> tuple[Run, Run]:
    vectors = Vectors()
    await vectors.load()
    asked = stream(options.requests, options.seed)
    try:
        fixed = await run(asked, vectors, options.max_error, 0.0)
        return fixed, await run(asked, vectors, options.max_error, options.share)
    finally:
        await vectors.aclose()


def show(fixed: Run, steered: Run, max_error: float, console: Console) -> None:
    table = Table("requests", "look-ups", "hits", "wrong of look-ups", "wrong, fixed bar", "bar", "checked so far")
    for place, (one, other) in enumerate(zip(steered.windows, fixed.windows, strict=True)):
        table.add_row(
            f"{place * WINDOW:,}", f"{one.lookups}", f"{one.hits}", f"{one.error:.2%}", f"{other.error:.2%}",
            f"{one.bar:g}", f"{one.checked}",
        )  # fmt: skip
    console.print(table)
    told = steered.report
    low, high = told["interval"]
    hits = sum(each.hits for each in steered.windows)
    wrong = sum(each.wrong for each in steered.windows)
    console.print(f"allowed {max_error:.2%} of look-ups; in truth {steered.error:.2%} (fixed bar: {fixed.error:.2%})")
    console.print(f"wrong of hits, in truth: {wrong / max(1, hits):.2%} of {hits}")
    console.print(
        f"measured by {told['checked']} checks: {told['wrong_of_lookups'] or 0:.2%} of look-ups, "
        f"95 % interval {low:.2%} to {high:.2%}; undecided: {told['undecided']}"
    )


def draw(fixed: Run, steered: Run, max_error: float, path: Path) -> None:
    """Raises ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    places = np.arange(len(steered.windows)) * WINDOW + WINDOW / 2
    for name, each, colour in (("fixed bar", fixed, "#cb181d"), ("bar that adapts", steered, "#2171b5")):
        axes.plot(places, [100 * window.error for window in each.windows], marker="o", color=colour, label=name)
    axes.axhline(100 * max_error, color="#555555", linestyle="--", label="allowed")
    axes.axvspan(*(share * len(places) * WINDOW for share in DRIFTS), color="#eeeeee", label="drift")
    axes.set_xlabel("requests")
    axes.set_ylabel("wrong hits, % of look-ups")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests drift", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--max-error", type=float, default=0.01)
    parser.add_argument("--share", type=float, default=0.05, help="of hits that are checked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("loadtest-results"))
    options = parser.parse_args(arguments)
    console = Console(width=120)
    fixed, steered = asyncio.run(both(options))
    show(fixed, steered, options.max_error, console)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        draw(fixed, steered, options.max_error, options.out / "drift.png")
        console.print(f"{options.out / 'drift.png'}")
    except ImportError:
        console.print("No plot: matplotlib is not installed (pip install 'thriftgate[loadtest]').")
    return int(steered.error > options.max_error)
