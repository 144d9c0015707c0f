"""Kind `thriftgate`: the headers of a call to another gateway."""

from __future__ import annotations

import re

import pytest

from gateway.domain.policy import Policy
from gateway.domain.request import Controls
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Provider
from tests.support.requests import chat_request


def upstream(caller_of: CallerOf, small: Provider) -> Caller:
    caller = caller_of(backend_at(small, "up", kind="thriftgate"))
    caller.policy = Policy(team="search")
    return caller


def sent(provider: Provider) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in provider.exchanges[-1].headers}


async def test_a_call_names_hops_attempt_team_and_time(caller_of: CallerOf, small: Provider) -> None:
    caller = upstream(caller_of, small)
    await read(await caller.call(chat_request("hi"), within_s=20))
    headers, attempt = sent(small), caller.record.attempts[0].id
    assert headers["x-thriftgate-hops"] == "gateway"
    assert headers["x-request-id"] == attempt
    assert headers["x-thriftgate-tags"] == f"caller_attempt={attempt},caller_team=search"
    assert 10 < float(headers["x-thriftgate-deadline"]) <= 20
    assert not {"x-thriftgate-session", "x-thriftgate-max-usd", "x-thriftgate-priority"} & headers.keys()


async def test_hops_money_priority_and_session_are_passed_on(caller_of: CallerOf, small: Provider) -> None:
    caller = upstream(caller_of, small)
    caller.hold.left = 12_345_678
    request = chat_request("hi")
    request.controls = Controls(hops=("first",), priority="batch")
    caller.session = "my session"
    await read(await caller.call(request))
    headers = sent(small)
    assert headers["x-thriftgate-hops"] == "first,gateway"
    assert headers["x-thriftgate-max-usd"] == "0.012345678"
    assert headers["x-thriftgate-priority"] == "batch"
    assert re.fullmatch("[0-9a-f]{24}", headers["x-thriftgate-session"])


async def test_sessions_of_other_teams_have_other_pseudonyms(caller_of: CallerOf, small: Provider) -> None:
    seen = set()
    for team, session in (("search", "one"), ("search", "two"), ("chat", "one"), ("search", "one")):
        caller = upstream(caller_of, small)
        caller.policy, caller.session = Policy(team=team), session
        await read(await caller.call(chat_request("hi")))
        seen.add(sent(small)["x-thriftgate-session"])
    assert len(seen) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_the_headers_differ_from_call_to_call(caller_of: CallerOf, small: Provider, stream: bool) -> None:
    caller = upstream(caller_of, small)
    for _ in range(2):
        await read(await caller.call(chat_request("hi", stream=stream)))
    assert len({dict(one.headers)[b"x-request-id"] for one in small.exchanges}) == 2
