"""Documents and recordings do not get past a hard budget."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.request import CompletionRequest
from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.context.attachments.files import base64, chat, file_part, pdf, wav
from tests.fakes.gateway import InProcessGateway, open_gateway, tenant
from tests.fakes.provider import Reply

POOR: dict[str, Any] = {"budget": {"limit_usd": "0.05", "window": "day"}}
"""Pays for 50,000 tokens of input."""
RICH: dict[str, Any] = {"budget": {"limit_usd": "5", "window": "day"}}


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, window_tokens=200_000) as opened:
        yield opened
        opened.pipeline.contexts.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "part",
    [
        file_part(pdf(60)),
        file_part(b"%PDF-1.7 damaged" * 5000),
        {"type": "file", "file": {"file_id": "file-abc"}},
        {"type": "input_audio", "input_audio": {"data": base64(wav(2000, rate=500)), "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "https://a.b/c.mp3"}},
    ],
    ids=["sixty pages", "unreadable", "by id", "half an hour", "by URL"],
)
async def test_what_may_cost_more_than_the_budget_is_not_sent(gateway: InProcessGateway, part: dict[str, Any]) -> None:
    with pytest.raises(BudgetExhausted):
        await gateway.read(chat(part, max_tokens=9), tenant(**POOR))
    assert not gateway.provider.exchanges
    await gateway.read(chat(part, max_tokens=9), tenant(team="rich", key="key_2", **RICH))
    assert len(gateway.provider.exchanges) == 1


async def test_an_answer_without_usage_is_billed_for_what_is_usual(gateway: InProcessGateway) -> None:
    def new_request() -> CompletionRequest:
        return chat(file_part(pdf(10)), max_tokens=9)

    gateway.provider.script(Reply(tokens=5, usage="absent"))
    await gateway.read(new_request(), tenant(**RICH))
    (row,) = await gateway.rows()
    assert row["estimated"]
    assert 10 * 2300 <= row["input_tokens"] < 10 * 2300 + 100
