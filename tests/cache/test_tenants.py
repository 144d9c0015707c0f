"""Whoever asks whatever whenever, stored, by meaning or still under way: nobody gets what was said to others."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.cache.coalescing.shared_call import SharedCall
from gateway.cache.coalescing.source import Paid
from gateway.cache.keys import scope
from gateway.cache.result import Miss
from gateway.domain.answer import Answer, Sink
from gateway.domain.money.usage import Usage
from gateway.domain.tenant import Tenant
from gateway.runtime.tasks import Tasks
from tests.cache.conftest import Given, Worker, completion, record, request, tenant
from tests.support.pieces import pieces_of

TENANTS = [
    tenant(team, key, organisation=organisation, cache={"scope": whose}, epoch="e1")
    for whose in ("key", "team", "organisation", "public")
    for organisation, team, key in (
        ("acme", "a", "k1"),
        ("acme", "a", "k2"),
        ("acme", "b", "k3"),
        ("other", "a", "k1"),
        ("other", "c", "k2"),
    )
]
QUESTIONS = ("What is the capital of Peru?", "what's the capital of peru", "What is 1 + 1?", "what is 1 + 1")


@dataclass(frozen=True)
class Ask:
    who: int
    question: str
    stream: bool


@dataclass(frozen=True)
class End:
    """Of what is under way, the answer of this number comes to its end."""

    number: int


class Bought:
    """A backend's answer, told in two pieces: the second comes when the test lets it."""

    published = False
    subscriber: Answer | None = None

    def __init__(self, who: Tenant, gate: asyncio.Event, stream: bool, keep: Callable[[Given], None]) -> None:
        self._keep = keep
        self.secret = f"<{scope(who)}>"
        self.answer = Given(completion(f"For {self.secret} only."))
        self.answer.stream = stream  # type: ignore[misc]
        self.ending = b"data: [DONE]\n\n" if stream else self.answer.body
        self.paid = Paid(Usage(9, output_tokens=2), 700, "small", "tiny")
        self._gate = gate
        self._unsaid = [self.secret.encode(), b" only"] if stream else []

    async def share_plain(self, shared: SharedCall, buy: Callable[[], Awaitable[None]]) -> None:
        await shared.run_call(self, buy)  # type: ignore[arg-type]
        self._keep(self.answer)
        shared.finish_call()

    async def share_stream(self, buy: Callable[[], Awaitable[None]], shared: SharedCall) -> None:
        await buy()
        await shared.publish(self)  # type: ignore[arg-type]
        self._keep(self.answer)

    async def pipe_to(self, take: Sink) -> bool:
        while self._unsaid:
            if len(self._unsaid) == 1:
                await self._gate.wait()
            if not take(self._unsaid.pop(0)):
                return True
        await self._gate.wait()
        return False


async def ask(worker: Worker, what: Ask, mark: str, gates: list[asyncio.Event]) -> tuple[Tenant, bytes]:
    """All that this tenant gets."""
    who = TENANTS[what.who % len(TENANTS)]
    seen, asked = record(who), request(what.question, stream=what.stream, seed=mark)
    found = await worker.cache.lookup(asked, who, seen)
    if isinstance(found, Miss):
        gates.append(gate := asyncio.Event())
        keep = partial(worker.cache.store, found, record=seen)
        bought = Bought(who, gate, what.stream, keep)  # type: ignore[arg-type]

        async def buy() -> None:
            if not what.stream:
                await gate.wait()

        await worker.cache.coalesce(found, asked, float("inf"), bought, buy)  # type: ignore[arg-type]
        if bought.subscriber is None:
            return who, bought.ending
        answer = bought.subscriber
    else:
        answer = found.answer
    said = b"".join([piece async for piece in pieces_of(answer)]) + answer.ending
    await answer.aclose()
    return who, said


steps = st.lists(
    st.one_of(
        st.builds(Ask, st.integers(0, len(TENANTS) - 1), st.sampled_from(QUESTIONS), st.booleans()),
        st.builds(End, st.integers(0, 30)),
    ),
    min_size=2,
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
async def test_nobody_gets_what_was_said_to_others(worker: Worker, plan: list[Ask | End]) -> None:
    mark, gates, tasks = uuid.uuid4().hex, list[asyncio.Event](), Tasks()
    asking: list[asyncio.Task[tuple[Tenant, bytes]]] = []
    for step in plan:
        if isinstance(step, Ask):
            asking.append(tasks.spawn(ask(worker, step, mark, gates), "ask"))
        elif gates:
            gates[step.number % len(gates)].set()
        for _ in range(3):
            await asyncio.sleep(0)
    while not all(task.done() for task in asking):
        for gate in gates:
            gate.set()
        await asyncio.sleep(0.001)
    for task in asking:
        who, said = task.result()
        told = said.split(b"<", 1)[1].split(b">", 1)[0]
        assert told == scope(who).encode()
        assert said.count(b"<") == said.count(told)


async def test_the_plan_above_does_share_within_a_scope(worker: Worker) -> None:
    """Else it would prove nothing."""
    mark, gates, tasks = uuid.uuid4().hex, list[asyncio.Event](), Tasks()
    two = [index for index, who in enumerate(TENANTS) if who.team == "a" and scope(who) == "team/acme/a"]
    asking = [tasks.spawn(ask(worker, Ask(who, QUESTIONS[2], True), mark, gates), "ask") for who in two * 3]
    while not all(task.done() for task in asking):
        await asyncio.sleep(0.01)
        for gate in gates:
            gate.set()
    assert len(gates) == 1
    assert all(b"<team/acme/a>" in task.result()[1] for task in asking)  # one that asks late gets it from the cache
    assert orjson.loads(completion())["choices"]
