"""What the hard mix asks: each question says what the provider shall do, so that both sides know its true cost."""

from __future__ import annotations

import base64
import io
import random
from functools import lru_cache
from typing import Any

import orjson

MOST_REASONING, MOST_PAGES = 10_000, 4
MEAN_RATE, RATE_SPREAD = 8000, 0.3
"""Tokens per second that nobody sees: some fifty times as fast as hosted models, and as uneven (of its logarithm)."""
KINDS = {"stream": 4, "burst": 2, "thinking": 4, "plain": 2, "document": 1, "cascade": 2, "tools": 1, "json": 1}
"""Kind of request → how often."""
UNBOUNDED = frozenset(("tools", "json"))
"""Tool calls and JSON are never capped below what they ask for."""


@lru_cache(maxsize=MOST_PAGES)
def pdf(pages: int) -> str:
    from pypdf import PdfWriter

    writer, file = PdfWriter(), io.BytesIO()
    for _ in range(pages):
        writer.add_blank_page(width=595, height=842)
    writer.write(file)
    return "data:application/pdf;base64," + base64.b64encode(file.getvalue()).decode()


def question(seed: int, number: int) -> tuple[str, dict[str, Any]]:
    """Kind and body of request `number`. Answers are short at first and long later, to trap what is learned."""
    chance = random.Random(f"{seed} {number}")
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    long = number > 200 and chance.random() < 0.5
    script: dict[str, Any] = {
        "number": number,
        "tokens": chance.randint(200, 1500) if long else chance.randint(5, 150),
        "reasoning": chance.choice((0, chance.randint(500, MOST_REASONING))) if kind == "thinking" else 0,
        "per_chunk": 10**6 if kind == "burst" else chance.randint(1, 20),
        "pages": chance.randint(1, MOST_PAGES) if kind == "document" else 0,
        "pace_s": 0.003,
        "rate": MEAN_RATE * chance.lognormvariate(0, RATE_SPREAD),
        "fail": chance.choice(("early", "late")) if chance.random() < 0.05 else "",
        "weak": kind == "cascade" and chance.random() < 0.4,
    }
    body: dict[str, Any] = {"model": "thinking" if kind in ("thinking", *UNBOUNDED) else "plain", "stream": True}
    match kind:
        case "plain":
            body["stream"] = False
        case "cascade":
            body |= {"model": "mixed", "stream": chance.random() < 0.5}
        case "tools":
            body |= {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}
        case "json":
            body["response_format"] = {"type": "json_object"}
    if kind in UNBOUNDED or chance.random() < 0.2:
        script["max"] = body["max_completion_tokens"] = chance.choice((2000, 4000, 12_000))
    content: Any = orjson.dumps(script).decode()
    if script["pages"]:
        file = {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf(script["pages"])}}
        content = [file, {"type": "text", "text": content}]
    return kind, {**body, "messages": [{"role": "user", "content": content}]}
