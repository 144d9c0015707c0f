"""Kind `litellm_proxy`: the headers of a call to a LiteLLM proxy, and what its answers say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.domain.policy import Policy
from gateway.domain.request import Controls
from tests.backends.conftest import KEY, CallerOf, backend_at
from tests.backends.test_thriftgate import sent
from tests.fakes.caller import Caller, read
from tests.fakes.litellm_proxy import RECORDED
from tests.fakes.provider import Provider, Raw
from tests.support.requests import chat_request, messages_request, request_in, responses_request

EVERYTHING = ["call_id", "session", "tags", "end_user"]


def proxy(caller_of: CallerOf, small: Provider, *headers: str, **changes: Any) -> Caller:
    caller = caller_of(backend_at(small, "proxy", kind="litellm_proxy", litellm_headers=headers, **changes))
    caller.policy, caller.session = Policy(team="search"), "my session"
    return caller


def litellms(provider: Provider) -> dict[str, str]:
    return {name: value for name, value in sent(provider).items() if name.startswith("x-litellm-")}


async def test_nothing_about_the_client_is_sent_unless_it_is_configured(caller_of: CallerOf, small: Provider) -> None:
    caller = proxy(caller_of, small)
    request = chat_request("hi")
    request.controls = Controls(hops=("first",))
    await read(await caller.call(request))
    headers = sent(small)
    assert litellms(small) == {}
    assert headers["x-thriftgate-hops"] == "first,gateway"
    assert headers["x-request-id"] == caller.record.attempts[0].id
    assert headers["authorization"] == f"Bearer {KEY}"
    assert not {"x-thriftgate-tags", "x-thriftgate-session", "x-thriftgate-max-usd"} & headers.keys()


async def test_what_is_configured_is_sent_in_litellms_headers(caller_of: CallerOf, small: Provider) -> None:
    caller = proxy(caller_of, small, *EVERYTHING)
    request = chat_request("hi")
    await read(await caller.call(request))
    found, attempt = litellms(small), caller.record.attempts[0].id
    assert found["x-litellm-call-id"] == attempt
    assert found["x-litellm-tags"] == f"team:search,attempt:{attempt}"
    assert re.fullmatch("[0-9a-f]{24}", found["x-litellm-session-id"])
    assert "x-litellm-end-user-id" not in found, "the request names none"


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (chat_request(), "/v1/chat/completions"),
        (responses_request(), "/v1/responses"),
        (messages_request(), "/v1/messages"),
        (request_in("openai_embeddings"), "/v1/embeddings"),
    ],
)
async def test_each_dialect_goes_to_the_proxys_own_endpoint(
    caller_of: CallerOf, small: Provider, request_: Any, path: str
) -> None:
    await read(await proxy(caller_of, small).call(request_))
    assert small.last.path == path


async def test_the_proxys_id_and_model_are_noted(caller_of: CallerOf, small: Provider) -> None:
    body = b'{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}'
    head = "\r\n".join(["HTTP/1.1 200 OK", f"content-length: {len(body)}", *RECORDED["plain"]])
    small.script(Raw((head.encode() + b"\r\n\r\n" + body,)))
    caller = proxy(caller_of, small)
    await read(await caller.call(chat_request()))
    (note,) = [each for each in caller.record.notes if each["what"] == "answered by LiteLLM"]
    assert note["call_id"] == "65b6c03b-2268-4adf-9bda-1a6e7971b955"
    assert (note["model"], note["fallbacks"]) == ("openai/gpt-4o", "0")


def test_prompts_to_a_proxy_leave_unless_it_calls_own_machines_only(small: Provider) -> None:
    assert backend_at(small, "proxy", kind="litellm_proxy").hosted
    assert not backend_at(small, "proxy", kind="litellm_proxy", location="local").hosted
