"""Random agent sessions, and the rules that every request sent for them must keep. CI checks a few hundred; for more:
`python -m tests.context.histories 10000`."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from random import Random
from typing import Any

import orjson

from gateway.context.bill.blocks import BlockReader
from gateway.context.bill.prompt_cache import marks_of
from gateway.context.count import Counter, encoding_of
from gateway.context.measure import sizes
from gateway.context.plan import Contexts
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Route
from gateway.domain.tenant import Key, Tenant
from gateway.errors import ContextTooLong
from gateway.routing.affinity.sessions import prefix_of
from tests.context.cuts.conversations import Talk, listing

CLAUDE = Backend(name="c", kind="anthropic", base_url="https://api.anthropic.com/v1", model="claude-opus-4-6")
GPT = Backend(name="g", kind="openai", base_url="https://api.openai.com/v1", model="gpt-5.6")
QUOTED = "\n\n[The gateway quotes"
QUOTED = "\n\n[The gateway quotes"
QUOTED = "\n\n[The gateway quotes"
_KINDS = ("read", "read", "read", "quote", "says", "beside", "two", "short", "picture", "thought", "rewind")


class Breach(AssertionError):
    """A request that breaks a rule."""


class History:
    """One session that is drawn with `random`, and planned request by request."""

    def __init__(self, random: Random, counter: Counter) -> None:
        self.random, self.talk, self.sent = random, Talk(), 0
        self.backend = random.choice([CLAUDE, CLAUDE, GPT])
        limit = random.choice([None, None, random.randint(2_000, 20_000)])
        self.limit, self._now = limit, 0.0
        self.tenant = Tenant(Key("k", "t"), Policy(team="t", context=ContextPolicy(max_input_tokens=limit)))
        self.contexts = Contexts(counter, monotonic=lambda: self._now)
        self.other = Contexts(counter, monotonic=lambda: self._now)
        self._signatures: dict[str, bytes] = {}

    def grow(self) -> None:
        """Add one step to the session: a call and its output, words of the user, or a rewind."""
        random, talk = self.random, self.talk
        kind, thinks, name = random.choice(_KINDS), random.random() < 0.4, f"shed/{random.randint(0, 30)}.txt"
        lines = random.choice([0, 5, 40, 150])
        if kind == "says":
            talk.says(
                random.choice(
                    ["go on", "never touch the billing module", "¿y las demás?", "Does the parcel leave Leeds at noon?"]
                )
            )
        elif kind == "rewind" and len(talk.messages) > 20 and random.random() < 0.2:
            del talk.messages[random.randrange(1, len(talk.messages) // 2) * 2 + 1 :]
        elif kind == "quote":
            talk.step(name, "ok", thinks=thinks, old=listing(name).split("\n")[3].partition("\t")[2])
        elif kind == "thought":
            thought = {"type": "thinking", "thinking": "Hm. " * 30, "signature": f"x{random.random()}"}
            talk.messages.append({"role": "assistant", "content": [thought]})
            talk.messages.append({"role": "user", "content": "Go on."})
        else:
            place = talk.step(name, listing(name, lines) if lines and kind != "short" else "nothing", thinks=thinks)
            content = talk.messages[place]["content"]
            if kind == "beside":
                content.append({"type": "text", "text": "keep this"})
            elif kind == "picture":
                source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
                content[0]["content"] = [{"type": "image", "source": source}]
            elif kind == "two":
                call = {"type": "tool_use", "id": f"u{place}{random.random()}", "name": "zog", "input": {}}
                talk.messages[place - 1]["content"].append(call)
                content.append({"type": "tool_result", "tool_use_id": call["id"], "content": listing("more", 40)})

    async def ask(self) -> None:
        """Plan and check the request with all messages so far."""
        request = self.talk.request()
        self._now += self.random.choice([5, 5, 5, 30, 400, 4000])
        prefix = prefix_of(request, "k")
        try:
            plan = await self.contexts.plan_for(request, self.tenant, self.backend, prefix)
        except ContextTooLong:
            return
        wire = translators(request.dialect, self.backend.spoken)[0]
        body = orjson.loads(wire.body(request, "m", plan if plan.changes_body else None))
        self.sent += 1
        if self.backend is CLAUDE:
            self._check(request, plan, body)
            self._learn(request, plan)
        else:
            _paired_chat(body["messages"])
        await self._check_limit(request, plan)
        if not self.sent % 5:
            await self._check_other_worker(plan)

    async def _check_limit(self, request: CompletionRequest, plan: ContextPlan) -> None:
        """A request that fits is not trimmed."""
        if self.limit is None or plan.frozen or not (plan.drop or plan.replace):
            return
        if (await sizes(request, self.contexts._counter, encoding_of(self.backend.model))).total <= self.limit:
            raise Breach("a request that fits was trimmed")

    async def _check_other_worker(self, plan: ContextPlan) -> None:
        """A worker that does not know the session leaves out the same parts."""
        request = self.talk.request()
        fresh = Contexts(Counter())
        fresh._counter = self.contexts._counter
        again = await fresh.plan_for(request, self.tenant, self.backend, prefix_of(request, "k"))
        if (again.drop, again.replace, again.no_thinking) != (plan.drop, plan.replace, plan.no_thinking):
            raise Breach("two workers leave out different parts")

    def _check(self, request: CompletionRequest, plan: ContextPlan, body: dict[str, Any]) -> None:
        messages = body["messages"]
        originals = [
            each
            for at, each in enumerate(self.talk.messages)
            if at not in plan.drop and not (at in plan.no_thinking and _only_thinks(each))
        ]
        if [each["role"] for each in messages] != [each["role"] for each in originals]:
            raise Breach("roles differ")
        if self.limit is None and plan.drop:
            raise Breach("a request without a limit was trimmed")
        for before, now in pairwise(messages):
            calls = [block["id"] for block in _blocks(before) if block["type"] == "tool_use"]
            if calls != [block["tool_use_id"] for block in _blocks(now) if block["type"] == "tool_result"]:
                raise Breach("a call has lost its result")
        for at, (old, new) in enumerate(zip(originals, messages, strict=True)):
            if not new["content"]:
                raise Breach(f"message {at} is empty")
            if plan.drop or request.turns[-1].index in plan.replace:
                continue
            if [said.partition(QUOTED)[0] for said in _said(new)] != _said(old):
                raise Breach("words of the user or of the model differ")
        self._check_signatures(messages, plan)
        try:
            marks_of(BlockReader(len).read(body))
        except ValueError as error:
            raise Breach(str(error)) from error

    def _check_signatures(self, messages: list[dict[str, Any]], plan: ContextPlan) -> None:
        """What precedes a signed thinking block must be what preceded it when the model wrote it. The running tool loop
        is exempt if the limit does not leave room for it."""
        spoken = max(at for at, each in enumerate(messages) if each["role"] == "user" and not _results(each))
        bare = [_bare(each) for each in messages]
        for at, message in enumerate(messages):
            for block in _blocks(message):
                if block["type"] != "thinking" or (at > spoken and plan.drop | plan.replace.keys() and not plan.frozen):
                    continue
                history = orjson.dumps(bare[:at])
                if self._signatures.setdefault(block["signature"], history) != history:
                    raise Breach("signed thinking has another history")

    def _learn(self, request: CompletionRequest, plan: ContextPlan) -> None:
        record = Record("r", self.tenant, "m", "anthropic_messages", stream=False)
        record.route = Route((self.backend,), "", prefix=prefix_of(request, "k"))
        attempt = record.attempt(self.backend)
        attempt.outcome, attempt.marks, attempt.frozen = "ok", plan.marks, plan.frozen
        attempt.usage = Usage(100, cached_tokens=plan.tokens_after)
        self.contexts.learn(record)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message["content"] if type(message["content"]) is list else []


def _only_thinks(message: dict[str, Any]) -> bool:
    return all(block["type"] == "thinking" for block in _blocks(message))


def _results(message: dict[str, Any]) -> bool:
    return any(block["type"] == "tool_result" for block in _blocks(message))


def _said(message: dict[str, Any]) -> list[str]:
    if type(message["content"]) is str:
        return [message["content"]]
    return [block["text"] for block in message["content"] if block["type"] == "text"]


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    """The message without cache marks, and with its text as a block."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if type(content) is str else content
    return {**message, "content": [{key: block[key] for key in block if key != "cache_control"} for block in blocks]}


def _paired_chat(messages: list[dict[str, Any]]) -> None:
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Breach("a result has lost its call")
            waiting.discard(message["tool_call_id"])
        elif waiting:
            raise Breach("a call has lost its result")
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}


async def check(seed: int, counter: Counter) -> int:
    """Check one history. Returns the number of requests that were sent. Raises Breach."""
    history = History(Random(seed), counter)
    for _ in range(history.random.randint(3, 60)):
        history.grow()
        if history.random.random() < 0.5:
            await history.ask()
    await history.ask()
    return history.sent


def main(count: int, first: int) -> None:
    counter = Counter()
    counter.load()
    requests, breaches = 0, list[str]()
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            requests += asyncio.run(check(seed, counter))
        except Breach as breach:
            breaches.append(f"seed {seed}: {breach}")
        if done % 250 == 0 or done == count:
            print(f"{done} histories, {requests} requests, {len(breaches)} invalid", *breaches[:20], flush=True)
    sys.exit(bool(breaches))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
