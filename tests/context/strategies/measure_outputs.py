"""Measures how many planted needles the cuts of old tool outputs keep: `python -m
tests.context.strategies.measure_outputs docs.jsonl.xz --half 2`.

A session reads 40 documents of one language, each with one needle, in the results of 40 tool calls. Then the user asks
about them. A needle counts as kept if its whole sentence is in the request with this question.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from pathlib import Path

from gateway.context.count import Counter
from gateway.context.cuts.cutting import Cutting
from gateway.domain.backend import Backend
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.routing.route import Prefix
from gateway.domain.tenant import Key, Tenant
from gateway.runtime.off_loop import OffLoop
from tests.context.cuts.conversations import Talk
from tests.context.strategies.measure import trials

CALLS = 40
TENANT = Tenant(Key("k1", "search"), Policy(team="search", context=ContextPolicy(holdout=0)))
BACKEND = Backend(name="c", kind="anthropic", base_url="https://api.anthropic.com/v1", model="claude-opus-4-6")


async def measure(path: Path, half: int) -> None:
    counter = Counter()
    counter.load("o200k_base")
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for lang, text, fact, _ in trials(path, half):
        found[lang].append((text, fact))
    print("language  sessions  needles  kept    in outputs that were cut  tokens sent of all outputs")
    for lang, rows in sorted(found.items()):
        kept = cut_needles = kept_in_cut = before = after = sessions = 0
        rows = rows[:: len(rows) // 200 or 1][: 200 // CALLS * CALLS]
        for start in range(0, len(rows), CALLS):
            talk, part = Talk(), rows[start : start + CALLS]
            facts = {talk.step(f"a/{number}.md", text): (text, fact) for number, (text, fact) in enumerate(part)}
            talk.says("Now answer my question about what you have read?")
            request = talk.request()
            lengths = tuple(len(turn.text) for turn in request.turns)
            cut = await Cutting(OffLoop()).cut(request, TENANT, BACKEND, Prefix(b"s", lengths, turns=len(lengths)))
            sessions += 1
            for place, (text, fact) in facts.items():
                sent = cut.texts.get(place, text)
                before += counter.count(text, "o200k_base")
                after += counter.count(sent, "o200k_base")
                kept += fact in sent
                cut_needles += place in cut.texts
                kept_in_cut += place in cut.texts and fact in sent
        share = f"{kept_in_cut}/{cut_needles}"
        print(f"{lang:9} {sessions:8} {len(rows):8}  {kept / len(rows):.1%}   {share:24}  {after / before:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("documents", type=Path)
    parser.add_argument("--half", type=int, choices=(1, 2), default=2)
    options = parser.parse_args()
    asyncio.run(measure(options.documents, options.half))


if __name__ == "__main__":
    main()
