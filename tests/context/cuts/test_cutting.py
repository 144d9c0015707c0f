"""For which requests old outputs are left out, and what is then sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextPlan, Route
from gateway.domain.tenant import Key, Tenant
from gateway.routing.affinity.sessions import Sessions, prefix_of
from tests.context.cuts.conversations import Talk, listing, parsed

CLAUDE = Backend(name="c", kind="anthropic", base_url="https://api.anthropic.com/v1", model="claude-opus-4-6")
GPT = Backend(name="g", kind="openai", base_url="https://api.openai.com/v1", model="gpt-5.6")
OWN = Backend(name="o", kind="openai", base_url="http://127.0.0.1:9/v1", model="qwen3", location="local")


def tenant(old_outputs: str = "cut") -> Tenant:
    context = ContextPolicy.model_validate({"old_outputs": old_outputs})
    return Tenant(Key("k", "search"), Policy(team="search", context=context))


async def planned(
    request: CompletionRequest, backend: Backend = CLAUDE, who: Tenant | None = None, contexts: Contexts | None = None
) -> ContextPlan:
    contexts = contexts or Contexts(Counter())
    return await contexts.plan_for(request, who or tenant(), backend, prefix_of(request, "k"))


def sent(request: CompletionRequest, plan: ContextPlan, backend: Backend = CLAUDE) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(translators(request.dialect, backend.spoken)[0].body(request, "m", plan))
    return body


def long_talk(*, thinks: bool = False) -> Talk:
    talk = Talk()
    talk.steps(60, thinks=thinks)
    talk.says("And the others?")
    return talk


async def test_old_outputs_are_left_out_and_everything_else_is_sent_as_it_is() -> None:
    talk = long_talk()
    request = talk.request()
    plan = await planned(request)
    assert plan.frozen
    assert plan.trimmed_tokens > 20_000
    body = sent(request, replace(plan, marks=None))
    assert len(body["messages"]) == len(talk.messages)
    for index, (new, old) in enumerate(zip(body["messages"], talk.messages, strict=True)):
        if index in plan.replace:
            assert new["content"][0]["tool_use_id"] == old["content"][0]["tool_use_id"]
            assert "left out by the gateway" in new["content"][0]["content"]
        else:
            assert new == old


async def test_a_chat_client_of_openai_gets_the_same() -> None:
    request = long_talk().chat()
    plan = await planned(request, GPT)
    assert plan.frozen
    body = sent(request, plan, GPT)
    assert [message.get("tool_call_id") for message in body["messages"]] == [
        message.get("tool_call_id") for message in request.body["messages"]
    ]
    assert sum("left out by the gateway" in str(message.get("content")) for message in body["messages"]) == len(
        plan.replace
    )


@pytest.mark.parametrize("why", ["policy", "untouched", "own server", "no session", "signed thinking in chat"])
async def test_requests_that_are_never_cut(why: str) -> None:
    request, backend, who = long_talk().chat(), GPT, tenant()
    assert (await planned(request, backend, who)).frozen
    if why == "policy":
        who = tenant("keep")
    elif why == "untouched":
        request.controls = Controls(session="s", untouched=True)
    elif why == "own server":
        backend = OWN
    elif why == "signed thinking in chat":
        messages = [dict(message) for message in request.body["messages"]]
        messages[1]["thinking_blocks"] = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
        request = parsed("openai_chat", {**request.body, "messages": messages})
    contexts = Contexts(Counter())
    prefix = None if why == "no session" else prefix_of(request, "k")
    assert not (await contexts.plan_for(request, who, backend, prefix)).touched


async def test_a_limit_below_the_cut_conversation_trims_it_further() -> None:
    request = long_talk().request()
    limited = Policy(team="search", context=ContextPolicy(max_input_tokens=8000))
    plan = await planned(request, who=Tenant(Key("k", "search"), limited))
    assert plan.drop
    assert not plan.frozen
    assert plan.tokens_after <= 8000
    sent(request, plan)


async def test_a_conversation_with_frozen_cuts_is_still_warm_where_it_was() -> None:
    request = long_talk().request()
    plan = await planned(request)
    prefix = prefix_of(request, "k")
    record = Record("r", tenant(), "m", "anthropic_messages", stream=False)
    record.route = Route((CLAUDE,), "", prefix=prefix)
    usage = Usage(10, cached_tokens=30_000)
    attempt = Attempt("a", 1, CLAUDE, 0.0, outcome="ok", usage=usage, trimmed_tokens=plan.trimmed_tokens, frozen=True)
    record.attempts.append(attempt)
    sessions = Sessions()
    sessions.learn(record)
    assert sessions.warm_tokens(prefix, CLAUDE, 40_000) == 30_000


async def test_sessions_of_one_name_with_other_histories_do_not_disturb_each_other() -> None:
    """Agents that work in parallel may send the same session."""
    contexts, one, other = Contexts(Counter()), long_talk(), Talk([{"role": "user", "content": "Count the parcels."}])
    other.steps(60)
    alone = (await planned(one.request())).replace
    for _ in range(2):
        assert (await planned(one.request(), contexts=contexts)).replace == alone
        assert (await planned(other.request(), contexts=contexts)).replace
    assert contexts.stats()["cut_sessions"] == 2


# ── what must always hold ──────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Sessions with quotes, repeated outputs, thinking, words beside results and several results in one message."""
    talk = Talk()
    for _ in range(draw(st.integers(20, 60))):
        kind = draw(st.sampled_from(["read", "read", "read", "quote", "says", "beside", "two", "short"]))
        thinks, name = draw(st.booleans()), f"shed/{draw(st.integers(0, 30))}.txt"
        if kind == "says":
            talk.says("go on")
        elif kind == "quote":
            talk.step(name, "ok", thinks=thinks, old=listing(name).split("\n")[3].partition("\t")[2])
        elif kind == "short":
            talk.step(name, "nothing", thinks=thinks)
        else:
            place = talk.step(name, thinks=thinks)
            if kind == "beside":
                talk.messages[place]["content"].append({"type": "text", "text": "keep this"})
            elif kind == "two":
                talk.messages[place - 1]["content"].append(
                    {"type": "tool_use", "id": f"u{place}", "name": "zog", "input": {}}
                )
                talk.messages[place]["content"].append(
                    {"type": "tool_result", "tool_use_id": f"u{place}", "content": listing("more")}
                )
    return talk


def signed(messages: list[dict[str, Any]]) -> list[tuple[bytes, bytes]]:
    """The signature of each thinking block, and all messages before it."""
    return [
        (block["signature"].encode(), orjson.dumps(messages[:at]))
        for at, message in enumerate(messages)
        for block in _blocks(message)
        if block["type"] == "thinking"
    ]


@settings(max_examples=40, deadline=None)
@given(talk=talks())
def test_every_request_is_valid_and_no_signed_thinking_gets_another_history(talk: Talk) -> None:
    async def session() -> None:
        contexts, signatures = Contexts(Counter()), dict[bytes, bytes]()
        for end in [at for at, message in enumerate(talk.messages, 1) if message["role"] == "user"]:
            request = talk.request(end)
            plan = await planned(request, contexts=contexts)
            messages = sent(request, replace(plan, marks=None))["messages"]
            assert [one["role"] for one in messages] == [one["role"] for one in talk.messages[:end]]
            for before, now in pairwise(messages):
                calls = [block["id"] for block in _blocks(before) if block["type"] == "tool_use"]
                results = [block["tool_use_id"] for block in _blocks(now) if block["type"] == "tool_result"]
                assert calls == results
            for old, new in zip(talk.messages[:end], messages, strict=True):
                texts = [[block for block in _blocks(each) if block["type"] == "text"] for each in (old, new)]
                assert texts[0] == texts[1]
            for signature, history in signed(messages):
                assert signatures.setdefault(signature, history) == history

    asyncio.run(session())


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message["content"] if type(message["content"]) is list else []


async def test_a_session_that_is_held_out_keeps_its_old_outputs() -> None:
    who = Tenant(Key("k", "search"), Policy(team="search", context=ContextPolicy(holdout=1.0)))
    named = replace(long_talk().request(), controls=Controls(session="s1"))
    plan = await planned(named, who=who)
    assert not plan.touched
    assert plan.marks is not None
    assert plan.marks.newest
    assert (await planned(named)).replace
    nameless = replace(named, controls=Controls(), agent_session="")
    assert (await planned(nameless, who=who)).replace  # without a name, it cannot be measured


async def test_a_team_for_which_cuts_are_switched_off_keeps_its_old_outputs() -> None:
    contexts = Contexts(Counter(), switched_off=lambda team: team == "search")
    assert not (await planned(long_talk().request(), contexts=contexts)).touched


async def test_a_client_that_changes_its_tools_gets_the_same_cuts_from_every_worker() -> None:
    contexts, talk = Contexts(Counter()), Talk()
    for step in range(60):
        talk.steps(1)
        found = talk.chat()
        tools = [{"type": "function", "function": {"name": "zog", "description": "Moves it. " * 8000 * (step > 30)}}]
        request = parsed("openai_chat", {**found.body, "tools": tools})
        plan = await planned(request, GPT, contexts=contexts)
    assert plan.replace
    assert (await planned(request, GPT)).replace == plan.replace
