"""The scripted provider under test, and OpenAI's own client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from tests.fakes.provider import Provider


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


@pytest.fixture
async def client(provider: Provider) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=provider.url, api_key="k", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client
