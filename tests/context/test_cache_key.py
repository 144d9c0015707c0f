"""When a request gets `prompt_cache_key`, and when its prompt may be kept for a day."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.domain.backend import Backend
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant
from gateway.routing.affinity.sessions import prefix_of
from tests.context.conftest import request_of, turn

OPENAI = "https://api.openai.com/v1"
GPT = Backend(name="g", kind="openai", base_url=OPENAI, model="gpt-5.1")


def asked(words: str = "Find the parcel. " * 500, *, more: str = "", **body: Any) -> CompletionRequest:
    request = request_of([turn("user", words), *([turn("assistant", more)] if more else [])])
    request.body |= body
    request.raw = orjson.dumps(request.body)
    return request


async def fields(
    request: CompletionRequest, backend: Backend = GPT, *, key: str = "k1", context: str = "auto", store: bool = False
) -> dict[str, str]:
    policy = Policy.model_validate(
        {"team": "search", "context": {"prompt_cache": context}, "data": {"store_prompts": store}}
    )
    plan = await Contexts(Counter()).plan_for(
        request, Tenant(Key(key, "search"), policy), backend, prefix_of(request, key)
    )
    found: dict[str, str] = orjson.loads(b"{" + plan.cache_fields[:-1] + b"}")
    return found


async def test_the_key_is_the_same_in_the_whole_session_and_differs_between_sessions_and_keys() -> None:
    first, later = await fields(asked()), await fields(asked(more="It is in Leeds."))
    assert first == later
    assert len(first["prompt_cache_key"]) == 32
    others = [await fields(asked("Count the parcels. " * 500)), await fields(asked(), key="k2")]
    assert len({first["prompt_cache_key"], *(other["prompt_cache_key"] for other in others)}) == 3


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (asked("Hi"), {}),
        (asked(prompt_cache_key="mine"), {}),
        (asked(), {"context": "client"}),
        (asked(), {"context": "off"}),
        (asked(), {"backend": GPT.model_copy(update={"base_url": "http://127.0.0.1:9/v1"})}),
        (asked(), {"backend": GPT.model_copy(update={"prompt_cache": False})}),
        (asked(), {"backend": Backend(name="m", kind="mistral", model="mistral-large")}),
    ],
)
async def test_requests_without_a_key(request_: CompletionRequest, options: dict[str, Any]) -> None:
    assert await fields(request_, **options) == {}


async def test_an_untouched_request_gets_no_key() -> None:
    request = asked()
    request.controls = Controls(untouched=True)
    assert await fields(request) == {}


async def test_a_proxy_of_openai_gets_the_key_if_its_entry_says_so() -> None:
    proxy = GPT.model_copy(update={"base_url": "https://llm.example.com/v1", "prompt_cache": True})
    assert await fields(asked(), proxy)


async def test_prompts_are_kept_for_a_day_only_where_the_team_lets_prompts_be_stored() -> None:
    assert (await fields(asked(), store=True))["prompt_cache_retention"] == "24h"
    assert "prompt_cache_retention" not in await fields(asked(), store=False)
    assert "prompt_cache_retention" not in await fields(asked(prompt_cache_retention="in_memory"), store=True)
    other = GPT.model_copy(update={"model": "gpt-4o"})
    assert "prompt_cache_retention" not in await fields(asked(), other, store=True)
