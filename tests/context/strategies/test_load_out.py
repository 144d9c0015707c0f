"""Tool definitions that a long session has never used: when they leave, and when they come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import orjson
import pytest

from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.context.strategies.load_out import LEAST_REQUESTS, LoadOut, OwnMemory, unused
from gateway.context.strategies.shared_memory import SharedMemory
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.domain.routing.route import ContextPlan, Route
from gateway.domain.tenant import Key, Tenant
from gateway.errors import StateUnavailable
from gateway.routing.affinity.sessions import prefix_of
from gateway.state.redis.connection import State
from tests.context.conftest import hosted_of
from tests.support.requests import request_in

LONG = "Moves the parcel to another shed, and notes who has moved it. " * 30
NAMES = ["zog", *(f"tool_{letter}" for letter in "abcdefghijkl")]
LEFT = set(NAMES) - {"zog"}
ANTHROPIC = Backend(name="a", kind="anthropic", base_url="https://api.anthropic.com/v1", model="claude-sonnet-4-5")
CALLED = LEAST_REQUESTS + 5
WAIT_S = 700.0
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}
CLIENTS: tuple[DialectName, ...] = ("openai_chat", "openai_responses", "anthropic_messages", "gemini_generate")


def tool(dialect: DialectName, name: str) -> dict[str, Any]:
    match dialect:
        case "anthropic_messages":
            return {"name": name, "description": LONG, "input_schema": SCHEMA}
        case "openai_responses":
            return {"type": "function", "name": name, "description": LONG, "parameters": SCHEMA}
        case "openai_chat":
            return {"type": "function", "function": {"name": name, "description": LONG, "parameters": SCHEMA}}
    return {"name": name, "description": LONG, "parameters": SCHEMA}


def history(dialect: DialectName, calls: int, name: str = "zog", last: str = "ok") -> dict[str, Any]:
    """The fields with a conversation of `calls` calls. `name`: the tool of the last call. `last`: its result."""
    items: list[dict[str, Any]] = []
    for number in range(calls):
        newest = number == calls - 1
        called, result, at = name if newest else "zog", last if newest else "ok", f"c{number}"
        match dialect:
            case "anthropic_messages":
                call = {"type": "tool_use", "id": at, "name": called, "input": {"at": number}}
                output = {"type": "tool_result", "tool_use_id": at, "content": result}
                items += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [output]}]
            case "openai_responses":
                items.append({"type": "function_call", "call_id": at, "name": called, "arguments": "{}"})
                items.append({"type": "function_call_output", "call_id": at, "output": result})
            case "openai_chat":
                call = {"id": at, "type": "function", "function": {"name": called, "arguments": "{}"}}
                items.append({"role": "assistant", "content": None, "tool_calls": [call]})
                items.append({"role": "tool", "tool_call_id": at, "content": result})
            case _:
                answer = {"functionResponse": {"name": called, "response": {"result": result}}}
                items.append({"role": "model", "parts": [{"functionCall": {"name": called, "args": {}}}]})
                items.append({"role": "user", "parts": [answer]})
    if dialect == "gemini_generate":
        return {"contents": [{"role": "user", "parts": [{"text": "Go."}]}, *items]}
    return {"input" if dialect == "openai_responses" else "messages": [{"role": "user", "content": "Go."}, *items]}


def tools_field(dialect: DialectName, names: list[str]) -> list[Any]:
    tools = [tool(dialect, name) for name in names]
    return [{"functionDeclarations": tools}] if dialect == "gemini_generate" else tools


@dataclass
class Worker:
    """One worker's context planning for one session, with a clock that the test sets."""

    dialect: DialectName = "anthropic_messages"
    now: float = 0.0
    model: str = "claude-sonnet-4-5"
    memory: Any = None
    mode: Literal["leave_out", "keep"] = "leave_out"
    holdout: float = 0.0
    prompt_cache: Literal["auto", "client"] = "auto"
    session: str = "s1"
    anthropic: bool = False
    """Whether the backend is at Anthropic's own address, where the gateway sets marks."""
    contexts: Contexts = field(init=False)
    plan: ContextPlan = field(init=False)
    client: CompletionRequest = field(init=False)

    def __post_init__(self) -> None:
        memory = self.memory or OwnMemory(lambda: self.now)
        self.contexts = Contexts(Counter(), monotonic=lambda: self.now, load_out=LoadOut(memory))

    async def send(self, calls: int = CALLED, *, after_s: float = 1.0, name: str = "zog", last: str = "ok",
                   names: list[str] = NAMES, untouched: bool = False, **more: Any) -> bytes:  # fmt: skip
        """Plan the request with `calls` calls so far, and return the body that is sent."""
        self.now += after_s
        fields = {"tools": tools_field(self.dialect, names), **history(self.dialect, calls, name, last), **more}
        controls = Controls(session=self.session, untouched=untouched)
        self.client = request = request_in(self.dialect, controls=controls, model=self.model, **fields)
        policy = ContextPolicy(unused_tools=self.mode, holdout=self.holdout, prompt_cache=self.prompt_cache)
        tenant = Tenant(Key("k1", "search"), Policy(team="search", context=policy))
        prefix, backend = prefix_of(request, "k1"), ANTHROPIC if self.anthropic else hosted_of(model=self.model)
        plan = self.plan = await self.contexts.plan_for(request, tenant, backend, prefix)
        wire = translators(self.dialect, (self.dialect,))[0]
        body = wire.body(plan.instead or request, self.model, plan if plan.changes_body else None)
        record = Record("r", tenant, self.model, self.dialect, stream=False)
        record.route = Route((backend,), "", prefix=prefix)
        attempt = record.attempt(backend)
        attempt.outcome, attempt.marks, attempt.frozen = "ok", plan.marks, plan.frozen
        attempt.usage = Usage(100, cache_write_5m_tokens=plan.tokens_after)
        self.contexts.learn(record)
        return body

    async def reduced(self, **more: Any) -> bytes:
        """A session whose definitions have just been left out. The last body."""
        await self.send(CALLED - 1)
        body = await self.send(after_s=WAIT_S, **more)
        assert self.plan.instead is not None
        return body


def offered(body: bytes) -> set[str]:
    found = orjson.loads(body).get("tools") or []
    declared = [each for item in found for each in item.get("functionDeclarations", [item])]
    return {(each.get("function") or each)["name"] for each in declared}


@pytest.mark.parametrize("dialect", CLIENTS)
async def test_definitions_leave_when_the_cache_has_expired_and_stay_out(dialect: DialectName) -> None:
    worker = Worker(dialect)
    assert offered(await worker.send(CALLED - 1)) == set(NAMES)
    cold = await worker.send(after_s=WAIT_S)
    assert offered(cold) == {"zog"}
    assert all(name in cold.decode() for name in LEFT)  # the note lists them
    warm = await worker.send(CALLED + 1)
    assert orjson.loads(warm)["tools"] == orjson.loads(cold)["tools"]
    assert worker.plan.tokens_after < worker.plan.tokens_before - 3000
    assert worker.plan.frozen


@pytest.mark.parametrize("dialect", CLIENTS)
async def test_a_call_of_a_tool_that_was_left_out_brings_all_definitions_back_for_good(dialect: DialectName) -> None:
    worker = Worker(dialect)
    await worker.reduced()
    assert offered(await worker.send(CALLED + 1, name="tool_c")) == set(NAMES)
    assert offered(await worker.send(CALLED + 40, after_s=WAIT_S)) == set(NAMES)


async def test_nothing_leaves_while_the_prompt_is_cached() -> None:
    worker = Worker()
    for calls in range(CALLED, CALLED + 5):
        assert offered(await worker.send(calls, after_s=290)) == set(NAMES)


async def test_an_unknown_session_keeps_its_definitions() -> None:
    assert offered(await Worker().send(after_s=WAIT_S)) == set(NAMES)


async def test_nothing_leaves_a_short_session() -> None:
    worker = Worker()
    await worker.send(LEAST_REQUESTS - 2)
    assert offered(await worker.send(LEAST_REQUESTS - 1, after_s=WAIT_S)) == set(NAMES)
    assert offered(await worker.send(LEAST_REQUESTS, after_s=WAIT_S)) == {"zog"}


@pytest.mark.parametrize(
    "more",
    [
        {"last": "see tool_c"},
        {"tool_choice": {"type": "tool", "name": "tool_c"}},
        {"tool_choice": {"type": "any"}},
        {"names": [*NAMES, "another"]},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    ],
)
async def test_what_may_need_a_definition_brings_all_back(more: dict[str, Any]) -> None:
    worker = Worker()
    await worker.reduced()
    assert offered(await worker.send(CALLED + 1, **more)) == set(more.get("names", NAMES))
    assert worker.plan.instead is None
    assert offered(await worker.send(CALLED + 2, after_s=WAIT_S)) == set(NAMES)


@pytest.mark.parametrize(
    "more",
    [
        {"last": "the tool_cat and my-tool_c are other words"},
        {"tool_choice": {"type": "tool", "name": "zog"}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ],
)
async def test_what_needs_no_definition_leaves_them_out(more: dict[str, Any]) -> None:
    worker = Worker()
    await worker.reduced()
    assert offered(await worker.send(CALLED + 1, **more)) == {"zog"}


async def test_nothing_leaves_a_session_that_asks_for_thinking() -> None:
    worker = Worker("openai_chat", model="gpt-5.2")
    await worker.send(CALLED - 1, reasoning_effort="low")
    assert offered(await worker.send(after_s=WAIT_S, reasoning_effort="low")) == set(NAMES)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "tool_c"}])
async def test_nothing_leaves_if_the_choice_of_tools_is_restricted(choice: dict[str, Any]) -> None:
    worker = Worker()
    await worker.send(CALLED - 1, tool_choice=choice)
    assert offered(await worker.send(after_s=WAIT_S, tool_choice=choice)) == set(NAMES)


async def test_gemini_functions_that_are_allowed_by_name_come_back() -> None:
    worker = Worker("gemini_generate")
    await worker.reduced()
    config = {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["tool_c"]}}
    assert offered(await worker.send(CALLED + 1, toolConfig=config)) == set(NAMES)


async def test_the_provider_s_own_tools_and_named_tools_stay() -> None:
    worker = Worker()
    tools = [SEARCH, *tools_field("anthropic_messages", NAMES)]
    await worker.send(CALLED - 2, tools=tools, last="try tool_b")
    assert offered(await worker.send(after_s=WAIT_S, tools=tools, last="try tool_b")) == {"web_search", "zog", "tool_b"}


def described(sizes: dict[str, int]) -> list[dict[str, Any]]:
    """A function for each of `NAMES`, whose descriptions have these numbers of characters; 900 by default."""
    tools = tools_field("openai_chat", NAMES)
    for each in tools:
        each["function"]["description"] = "word " * (sizes.get(each["function"]["name"], 900) // 5)
    return tools


@pytest.mark.parametrize(
    ("sizes", "left"),
    [({}, set()), ({"zog": 200}, LEFT), ({"tool_l": 2000}, LEFT)],
    ids=["no room", "room in the one that stays", "a provider without a limit"],
)
async def test_the_note_makes_no_description_longer_than_openai_accepts(sizes: dict[str, int], left: set[str]) -> None:
    worker, tools = Worker("openai_chat", model="gpt-5.2"), described(sizes)
    await worker.send(CALLED - 1, tools=tools)
    body = await worker.send(after_s=2 * 3600, tools=tools)
    assert set(NAMES) - offered(body) == left
    most = max(len(each["function"]["description"]) for each in orjson.loads(body)["tools"])
    assert most <= 1024 or "tool_l" in sizes


async def test_a_few_short_definitions_stay() -> None:
    worker = Worker()
    few = ["zog", "tool_a"]
    await worker.send(CALLED - 1, names=few)
    assert offered(await worker.send(after_s=WAIT_S, names=few)) == set(few)


async def test_definitions_stay_if_a_return_would_cost_more_than_they_save() -> None:
    worker = Worker()
    long = "The parcel leaves Leeds at noon. " * 20_000
    await worker.send(CALLED - 1, last=long)
    assert offered(await worker.send(after_s=WAIT_S, last=long)) == set(NAMES)


async def test_nothing_leaves_if_no_tool_was_called() -> None:
    worker = Worker()
    await worker.send(CALLED - 1, names=NAMES[1:])
    assert offered(await worker.send(after_s=WAIT_S, names=NAMES[1:])) == LEFT


@pytest.mark.parametrize("more", [{"mode": "keep"}, {"holdout": 1.0}])
async def test_policy_and_holdout_keep_all_definitions(more: dict[str, Any]) -> None:
    worker = Worker(**more)
    await worker.send(CALLED - 1)
    assert offered(await worker.send(after_s=WAIT_S)) == set(NAMES)


async def test_an_untouched_request_is_sent_as_it_is() -> None:
    worker = Worker()
    await worker.reduced()
    assert await worker.send(CALLED + 1, untouched=True) == worker.client.raw


async def test_a_cache_mark_on_a_definition_that_leaves_moves_to_the_one_before() -> None:
    tools = tools_field("anthropic_messages", NAMES)
    tools[-1]["cache_control"] = {"type": "ephemeral"}
    worker = Worker(prompt_cache="client")
    await worker.send(CALLED - 1, tools=tools)
    (kept,) = orjson.loads(await worker.send(after_s=WAIT_S, tools=tools))["tools"]
    assert kept["name"] == "zog"
    assert kept["cache_control"] == {"type": "ephemeral"}


async def test_a_mark_of_an_hour_keeps_the_definitions_for_an_hour() -> None:
    system = [{"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    worker = Worker()
    await worker.send(CALLED - 1, system=system)
    assert offered(await worker.send(after_s=WAIT_S, system=system)) == set(NAMES)
    assert offered(await worker.send(after_s=3700, system=system)) == {"zog"}


async def test_all_workers_leave_out_the_same_definitions(state: State) -> None:
    session = uuid4().hex
    first, second = (Worker(memory=SharedMemory(state), session=session) for _ in range(2))
    await first.send(CALLED - 1)
    assert offered(await second.send(after_s=WAIT_S)) == set(NAMES)  # the prompt is still cached
    tag = prefix_of(first.client, "k1").session.hex()
    (cached,) = [key for key in await state.call("KEYS", "*:cached:*") if tag in key.decode()]
    await state.call("DEL", cached)
    cold = await first.send()
    assert offered(cold) == {"zog"}
    assert orjson.loads(await second.send())["tools"] == orjson.loads(cold)["tools"]


class Gone:
    """A memory whose server is gone once `down` is set."""

    def __init__(self, worker_now: list[float]) -> None:
        self.own, self.down = OwnMemory(lambda: worker_now[0]), False

    async def read(self, session: bytes, backend: str) -> tuple[bytes | None, bool]:
        if self.down:
            raise StateUnavailable("gone")
        return await self.own.read(session, backend)

    async def write(self, session: bytes, backend: str, decided: bytes, cached_s: float) -> None:
        if self.down:
            raise StateUnavailable("gone")
        await self.own.write(session, backend, decided, cached_s)


async def test_a_worker_without_the_state_server_keeps_its_decisions() -> None:
    now = [0.0]
    memory = Gone(now)
    worker, other = Worker(memory=memory), Worker(memory=memory)
    await worker.send(CALLED - 1)
    now[0] = WAIT_S
    assert offered(await worker.send()) == {"zog"}
    memory.down = True
    assert offered(await worker.send(CALLED + 1)) == {"zog"}
    assert offered(await other.send(CALLED + 1)) == set(NAMES)


async def test_a_response_shows_the_client_s_own_tools() -> None:
    worker = Worker("openai_responses")
    await worker.reduced()
    assert len(worker.client.echoed["tools"]) == len(NAMES)
    wire = translators("openai_responses", ("openai_responses",))[0]
    answer = {"id": "r", "object": "response", "status": "completed", "output": [], "tools": [], "usage": None}
    assert len(orjson.loads(wire.plain(worker.client, orjson.dumps(answer)).body)["tools"]) == len(NAMES)


async def test_a_prompt_that_changes_at_its_beginning_is_not_written_for_an_hour() -> None:
    worker = Worker(anthropic=True)
    await worker.reduced()
    bodies = [await worker.send(CALLED + more) for more in range(1, 6)]
    assert b'"1h"' in bodies[-1]
    back = await worker.send(CALLED + 6, last="see tool_c")
    assert b'"1h"' not in back
    assert "cache_control" in orjson.loads(back)["tools"][-1]


async def test_a_tool_that_the_client_adds_is_searched_in_the_whole_history() -> None:
    worker, more = Worker(), [*NAMES, "tool_new"]
    await worker.send(last="tool_new may help")
    await worker.send(names=more, last="tool_new may help")
    assert offered(await worker.send(names=more, after_s=WAIT_S, last="tool_new may help")) == {"zog", "tool_new"}


async def test_unused_definitions_of_one_request() -> None:
    worker = Worker()
    await worker.send()
    assert set(unused(worker.client)) == LEFT
