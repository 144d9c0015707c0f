"""Measures how many planted needles a request still has after cuts of old tool outputs: `python -m
tests.context.strategies.measure_outputs docs.jsonl.xz --half 2`.

A session reads the documents of one language of the half, of which one has a needle, and makes twelve short calls. Then
the user asks about the needle. A needle counts as kept if its whole sentence is in the request with this question. The
last four documents that are read get no needle, because they are rarely cut.
"""

from __future__ import annotations

import argparse
import asyncio
import lzma
import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import orjson

from gateway.context.count import Counter
from gateway.context.cuts.cutting import Cutting
from gateway.domain.backend import Backend
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.routing.route import Prefix
from gateway.domain.tenant import Key, Tenant
from gateway.runtime.off_loop import OffLoop
from tests.context.cuts.conversations import Talk
from tests.context.strategies.measure import planted
from tests.context.strategies.needles import CHOSEN_ON, REPORTED_ON

TENANT = Tenant(Key("k1", "search"), Policy(team="search", context=ContextPolicy(holdout=0)))
BACKEND = Backend(name="c", kind="anthropic", base_url="https://api.anthropic.com/v1", model="claude-opus-4-6")
_LATE = 4


@dataclass(slots=True)
class Tally:
    sessions: int = 0
    kept: int = 0
    cut: int = 0
    """Number of sessions in which the output with the needle was cut."""
    kept_in_cut: int = 0
    before: int = 0
    after: int = 0


def documents(path: Path, half: int) -> dict[str, list[str]]:
    """The documents of the half, by language."""
    found: dict[str, list[str]] = defaultdict(list)
    with lzma.open(path) as lines:
        for document in map(orjson.loads, lines):
            found[document["lang"]].append(document["text"])
    return {lang: texts[half - 1 :: 2] for lang, texts in found.items()}


def asked(texts: list[str], fact: str, question: str, chance: random.Random) -> tuple[Talk, int]:
    """(A session, index of the message with the needle)."""
    talk, order = Talk(), chance.sample(texts, len(texts))
    at = chance.randrange(len(order) - _LATE)
    order[at] = planted(order[at], fact, chance)
    places = [talk.step(f"a/{number}.md", text) for number, text in enumerate(order)]
    for number in range(12):
        talk.step(f"b/{number}", f"done: {number}")
    talk.says(question)
    return talk, places[at]


async def measure(path: Path, half: int, rounds: int) -> None:
    counter = Counter()
    counter.load("o200k_base")
    print("language  sessions  kept    in outputs that were cut  tokens sent of all messages")
    for lang, texts in documents(path, half).items():
        tally, chance = Tally(), random.Random(half)
        for fact, question in list((CHOSEN_ON if half == 1 else REPORTED_ON)[lang]) * rounds:
            talk, place = asked(texts, fact, question, chance)
            request = talk.request()
            lengths = tuple(len(turn.text) for turn in request.turns)
            cut = await Cutting(OffLoop()).cut(request, TENANT, BACKEND, Prefix(b"s", lengths, turns=len(lengths)))
            sent = [cut.texts.get(at, turn.text) for at, turn in enumerate(request.turns)]
            tally.sessions += 1
            tally.before += sum(counter.count(turn.text, "o200k_base") for turn in request.turns)
            tally.after += sum(counter.count(text, "o200k_base") for text in sent)
            kept = any(fact in text for text in sent)
            tally.kept += kept
            tally.cut += place in cut.texts
            tally.kept_in_cut += kept and place in cut.texts
            if not kept:
                print(f"lost: {lang}: {question}")
        share, sizes = f"{tally.kept_in_cut}/{tally.cut}", f"{tally.after / tally.before:.1%}"
        print(f"{lang:9} {tally.sessions:8}  {tally.kept / tally.sessions:.1%}   {share:24}  {sizes}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("documents", type=Path)
    parser.add_argument("--half", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    asyncio.run(measure(options.documents, options.half, options.rounds))


if __name__ == "__main__":
    main()
