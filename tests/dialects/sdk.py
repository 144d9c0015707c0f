"""OpenAI's official client, fed with bytes instead of a network."""

from __future__ import annotations

from typing import Any

import httpx
import openai
from openai.types.chat import ChatCompletion

from tests.dialects.samples import USER


def accumulate(stream: bytes, **options: Any) -> ChatCompletion:
    """What the SDK's own streaming helper makes of `stream`."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        client = openai.OpenAI(api_key="k", base_url="http://gateway/v1", http_client=http, max_retries=0)
        with client.chat.completions.stream(model="auto", messages=[USER], **options) as events:  # type: ignore[list-item]
            for _ in events:
                pass
            return events.current_completion_snapshot
