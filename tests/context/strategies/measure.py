"""Measures how many planted needles are kept: `python -m tests.context.strategies.measure docs.jsonl.xz --half 2`.

Each document gets one needle at a time, as a paragraph or within one, at a place drawn at random. The document and the
question are one message, or the document is the result of a tool. A needle counts as kept if its whole sentence is in
the text that is sent. Documents that are sent whole count as kept but not as at most half of the tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import lzma
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from gateway.cache.semantic.embedder import OnnxEmbedder
from gateway.context.count import Counter
from gateway.context.cuts.session import NO_CUT
from gateway.context.strategies.relevance import Relevance
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Key, Tenant
from gateway.runtime.off_loop import OffLoop
from tests.context.strategies.needles import CHOSEN_ON, REPORTED_ON
from tests.support.requests import chat_request

TENANT = Tenant(Key("k1", "search"), Policy(team="search", context=ContextPolicy(long_documents="relevant", holdout=0)))
PLACES = ("question last", "question first", "tool")


@dataclass(slots=True)
class Tally:
    trials: int = 0
    kept: int = 0
    cut: int = 0
    half: int = 0
    """Number of texts that were cut and have at most half of the tokens."""
    before: int = 0
    after: int = 0


def planted(text: str, fact: str, chance: random.Random) -> str:
    """`text` with the fact after one of its paragraphs, as a paragraph or at the end of one."""
    ends = [at for at in range(len(text)) if text.startswith("\n\n", at) and text.count("```", 0, at) % 2 == 0]
    at = chance.choice(ends)
    prose = text[:at].rpartition("\n")[2].strip()
    joined = " " if chance.random() < 0.5 and prose[-1:] == "." and len(prose) > 80 else "\n\n"
    return f"{text[:at]}{joined}{fact}{text[at:]}"


def asked(text: str, question: str, place: str) -> CompletionRequest:
    if place == "question last":
        return chat_request(f"{text}\n\n{question}")
    if place == "question first":
        return chat_request(f"{question}\n\n{text}")
    call = {"id": "c1", "type": "function", "function": {"name": "leer", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    return chat_request("", messages=messages)


def trials(path: Path, half: int) -> Iterator[tuple[str, str, str, str]]:
    """(Language, text, fact, question) for each document of the half, and each needle of the half's list."""
    chance = random.Random(half)
    numbers: dict[str, int] = defaultdict(int)
    with lzma.open(path) as lines:
        for document in map(orjson.loads, lines):
            lang = document["lang"]
            numbers[lang] += 1
            if numbers[lang] % 2 == half % 2:
                for fact, question in (CHOSEN_ON if half == 1 else REPORTED_ON)[lang]:
                    yield lang, planted(document["text"], fact, chance), fact, question


async def measure(path: Path, half: int, every: int) -> dict[tuple[str, str], Tally]:
    embedder = OnnxEmbedder(remembered=10**6)
    await embedder.wait_ready(60)
    strategy, counter = Relevance(embedder, OffLoop()), Counter()
    counter.load("o200k_base")
    found: dict[tuple[str, str], Tally] = defaultdict(Tally)
    for number, (lang, text, fact, question) in enumerate(trials(path, half)):
        if number % every:
            continue
        place = PLACES[number // every % len(PLACES)]
        request = asked(text, question, place)
        cut = await strategy.cut(request, TENANT, NO_CUT)
        whole = max((turn.text for turn in request.turns), key=len)
        sent = next(iter(cut.texts.values()), whole)
        sizes = counter.count(whole, "o200k_base"), counter.count(sent, "o200k_base")
        tally = found[lang, place]
        tally.trials += 1
        tally.kept += fact in sent
        tally.cut += sent is not whole
        tally.half += sent is not whole and sizes[1] <= sizes[0] / 2
        tally.before += sizes[0]
        tally.after += sizes[1]
        if fact not in sent:
            print(f"lost: {lang}, {place}: {question}")
    await embedder.aclose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("documents", type=Path)
    parser.add_argument("--half", type=int, choices=(1, 2), default=1)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    found = asyncio.run(measure(options.documents, options.half, options.every))
    print("language  place            trials  kept    cut     <= 50 %  tokens sent")
    for (lang, place), tally in sorted(found.items()):
        shares = [each / tally.trials for each in (tally.kept, tally.cut, tally.half)]
        left = tally.after / tally.before
        print(f"{lang:9} {place:16} {tally.trials:6}  {shares[0]:.1%}  {shares[1]:.1%}  {shares[2]:.1%}  {left:.1%}")


if __name__ == "__main__":
    main()
