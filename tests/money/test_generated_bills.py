"""A thousand generated requests: every row costs what a bill that knows nothing of the gateway's code comes to."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.errors import GatewayError
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, backend, open_gateway
from tests.fakes.provider import Provider, Raw
from tests.money.reporting import (
    DONE,
    NO_CACHE,
    STREAM,
    begun_message,
    chunk,
    completion,
    event,
    hang_up,
    plain_reply,
    request_for,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]

SEEDS, REQUESTS = 4, 250
CLASSES = {
    "input": 3,
    "cached_input": "0.3",
    "cache_write_5m": "3.75",
    "cache_write_1h": 6,
    "output": 15,
    "reasoning": 18,
}
"""USD per 1M tokens at the standard tier."""
FACTORS = {"priority": 2, "flex": Fraction(1, 2), "fast": 6, "us": Fraction(11, 10), "fast+us": Fraction(66, 10)}
DEAREST = max(FACTORS.values())
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions")
End = Literal["whole", "cut", "hang up"]


def entry() -> PriceEntry:
    classes = {name: Decimal(usd) for name, usd in CLASSES.items()}
    tiers = {
        tier: {name: usd * Fraction(factor).numerator / Fraction(factor).denominator for name, usd in classes.items()}
        for tier, factor in FACTORS.items()
    }
    return PriceEntry.model_validate({**classes, "service_tiers": tiers})


def more(provider: Provider) -> tuple[Backend, ...]:
    return (backend(provider, "claude", kind="anthropic", price=entry(), window_tokens=None),)


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    fields = {"price": entry(), "dialects": ("openai_chat",), "window_tokens": None}
    async with open_gateway(state, database, tmp_path, more=more, **fields) as opened:
        yield opened


@dataclass(frozen=True)
class Case:
    """One answer as its provider would bill it."""

    path: str
    model: Literal["small", "claude"]
    stream: bool
    end: End
    tier: str
    fresh: int
    cached: int
    written_5m: int
    written_1h: int
    reasoning: int
    words: int

    @classmethod
    def drawn(cls, chance: random.Random) -> Case:
        model = chance.choice(("small", "claude"))
        stream = chance.random() < 0.7
        end: End = chance.choices(("whole", "cut", "hang up"), (6, 2, 2))[0] if stream else "whole"
        ours = ("priority", "flex") if model == "small" else ("fast", "us", "fast+us")
        return cls(
            chance.choice(PATHS),
            model,
            stream,
            end,
            chance.choice(("", "", "", *ours)),
            chance.randrange(1, 5000),
            chance.choice((0, chance.randrange(1, 90_000))),
            chance.choice((0, chance.randrange(1, 9000))),
            chance.choice((0, 0, chance.randrange(1, 9000))) if model == "claude" else 0,
            chance.choice((0, 0, chance.randrange(1, 3000))),
            chance.randrange(1, 60),
        )

    @property
    def bill_pico(self) -> int:
        return bill_pico(
            self.tier, self.fresh, self.cached, self.written_5m, self.written_1h, self.words, self.reasoning
        )

    def script(self) -> Raw:
        return self._claude() if self.model == "claude" else self._openai()

    def _claude(self) -> Raw:
        speed, geo = "fast" if "fast" in self.tier else "standard", "us" if "us" in self.tier else "global"
        usage: dict[str, Any] = {
            "input_tokens": self.fresh,
            "cache_read_input_tokens": self.cached,
            "cache_creation_input_tokens": self.written_5m + self.written_1h,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written_5m,
                "ephemeral_1h_input_tokens": self.written_1h,
            },
            "service_tier": "standard",
            "speed": speed,
            "inference_geo": geo,
        }
        last = {"output_tokens": self.words + self.reasoning}
        if self.reasoning:
            last["output_tokens_details"] = {"thinking_tokens": self.reasoning}  # type: ignore[assignment]
        if not self.stream:
            content = [{"type": "text", "text": "word " * self.words}]
            shape = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn"}
            return plain_reply({**shape, "content": content, "usage": {**usage, **last}})
        said = STREAM + begun_message({**usage, "output_tokens": 1}, self.words)
        if self.end != "whole":
            return Raw((said, 0.01) if self.end == "cut" else (said,), then="fin" if self.end == "cut" else "hang")
        stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}
        closed = event({"type": "content_block_stop", "index": 0}) + event(stop) + event({"type": "message_stop"})
        return Raw((said + closed,), then="fin")

    def _openai(self) -> Raw:
        prompt, output = self.fresh + self.cached + self.written_5m, self.words + self.reasoning
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": self.written_5m},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }
        tier = {"service_tier": self.tier or "default"}
        if not self.stream:
            return plain_reply(completion("word " * self.words, usage, **tier))
        said = STREAM + chunk({"role": "assistant", "content": ""}, **tier)
        said += b"".join(chunk({"content": "word "}, **tier) for _ in range(self.words))
        if self.end != "whole":
            return Raw((said, 0.01) if self.end == "cut" else (said,), then="fin" if self.end == "cut" else "hang")
        return Raw((said + chunk({}, "stop", **tier) + chunk(None, usage=usage, **tier) + DONE,), then="fin")


def bill_pico(tier: str, fresh: int, cached: int, written_5m: int, written_1h: int, text: int, reasoning: int) -> int:
    """Pico-dollars: tokens times the list's dollars, and nothing else."""
    tokens = (fresh, cached, written_5m, written_1h, text, reasoning)
    names = ("input", "cached_input", "cache_write_5m", "cache_write_1h", "output", "reasoning")
    usd = sum(count * Fraction(str(CLASSES[name])) for count, name in zip(tokens, names, strict=True))
    pico = usd * Fraction(FACTORS.get(tier, DEAREST) if tier else 1) * 10**6
    assert pico.denominator == 1
    return int(pico)


def billed_pico(row: dict[str, Any]) -> int:
    """What the tokens on a row come to."""
    names = ("input_tokens", "cached_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "output_tokens")
    return bill_pico(row["service_tier"], *(row[name] for name in names), row["reasoning_tokens"])


async def play(gateway: InProcessGateway, case: Case) -> None:
    gateway.provider.script(case.script())
    request = request_for(case.path, stream=case.stream, model=case.model)
    if case.end == "hang up":
        await hang_up(gateway, request)
        return
    try:
        await gateway.read(request, NO_CACHE)
    except GatewayError:
        assert case.end == "cut"


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_every_row_costs_what_an_independent_bill_comes_to(gateway: InProcessGateway, seed: int) -> None:
    chance = random.Random(seed)
    cases = [Case.drawn(chance) for _ in range(REQUESTS)]
    ids = []
    for case in cases:
        await play(gateway, case)
        ids.append(gateway.record.attempts[-1].id)
    rows = {row["id"]: row for row in await gateway.rows()}
    assert len(rows) == REQUESTS
    off = 0
    for case, name in zip(cases, ids, strict=True):
        row = rows[name]
        assert row["cost_pico"] == billed_pico(row), (case, row)
        if case.end == "whole":
            off += abs(row["cost_pico"] - case.bill_pico)
            assert row["service_tier"] == case.tier, (case, row)
            continue
        assert row["outcome"] == "interrupted"
        assert 1 <= row["output_tokens"] <= case.words, (case, row)
        if case.model == "claude":  # its first event told the input, and where it is served
            told = replace(case, words=row["output_tokens"], reasoning=0)
            assert row["cost_pico"] == told.bill_pico, (case, row)
    assert off == 0
