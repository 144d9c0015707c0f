"""Answers of a backend that the form of the client's API cannot hold: they are paid for, and the client hears why."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.api.conftest import Api, api
from tests.fakes.client import Client
from tests.fakes.gateway import INPUT
from tests.fakes.provider import Raw

__all__ = ["api"]

USAGE = {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}


async def answered(client: Client) -> Client:
    async with asyncio.timeout(20):
        return await client.run()


def raw(kind: str, body: bytes) -> Raw:
    return Raw((f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body,))


@pytest.mark.parametrize("method", ["embedContent", "batchEmbedContents"])
@pytest.mark.parametrize("data", [[{}], [1], ["a"], [{"index": "x", "embedding": [1]}, {"index": 0}], [{"index": 0}]])
async def test_vectors_that_cannot_be_read_are_an_error_and_billed_once(api: Api, method: str, data: list[Any]) -> None:
    api.gateway.provider.script(raw("application/json", orjson.dumps({"data": data, "usage": USAGE})))
    content = {"content": {"parts": [{"text": "hello"}]}}
    body = content if method == "embedContent" else {"requests": [content]}
    path = f"/v1beta/models/small:{method}"
    client = await answered(api.client(orjson.dumps(body), path=path))
    assert client.complete
    assert (client.status, client.json["error"]["code"]) == (502, 502)
    (row,) = await api.gateway.rows()
    assert (row["input_tokens"], row["cost_pico"]) == (3, 3 * INPUT)
    assert api.gateway.quiet()
    assert api.overload.stats()["in_flight"] == 0
