"""Random agent sessions, and the rules that every request sent for them must keep. CI checks a few hundred; for more:
`python -m tests.context.histories 10000`."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter as TotalOf
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import orjson

from gateway.context.count import Counter, encoding_of
from gateway.context.measure import sizes
from gateway.context.plan import Contexts
from gateway.context.strategies.load_out import LEAST_REQUESTS, LoadOut, OwnMemory
from gateway.context.strategies.old_turns import MARK
from gateway.context.strategies.relevance import LEAST_CHARACTERS, Relevance
from gateway.context.strategies.repeated_errors import RepeatedErrors
from gateway.context.strategies.strategy import InTurn
from gateway.context.vocabulary import EncodingName
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.domain.routing.route import ContextPlan, Route
from gateway.domain.tenant import Key, Tenant
from gateway.errors import ContextTooLong
from gateway.routing.affinity.sessions import prefix_of
from gateway.runtime.off_loop import OffLoop, P, T
from tests.context.cuts.conversations import Talk, listing
from tests.context.noting import NotesAtOnce
from tests.context.spoken import spoken
from tests.context.validity import CHECKS, Breach, ToolRules, blocks, user_texts
from tests.fakes.embedder import FakeEmbedder
from tests.support.requests import request_in

CLAUDE = Backend(name="c", kind="anthropic", base_url="https://api.anthropic.com/v1", model="claude-opus-4-6")
GPT = Backend(name="g", kind="openai", base_url="https://api.openai.com/v1", model="gpt-5.6")
GEMINI = Backend(name="v", kind="gemini", base_url="https://generativelanguage.googleapis.com", model="gemini-2.5-pro")
QUOTED = "\n\n[The gateway quotes"
ERROR = "Traceback: the shed is closed\n" + "  at row 12 of the ledger\n" * 30
DOCUMENT = "\n\n".join(
    f"The parcel office number {number} in the north of Leeds opens at nine, and the clerk there keeps the keys of "
    f"shed {number * 7} in a drawer under the counter, which nobody else may open." for number in range(25)
)  # fmt: skip
TOOLS = {name: f"Moves a parcel of kind {name}. " * 40 for name in ("zog", *(f"tool_{n}" for n in range(12)))}
_KINDS = ("read", "read", "read", "quote", "says", "beside", "two", "short", "picture", "thought", "rewind", "error")
_RARE = ("document", "names a tool", "calls another tool", "read document")
_COUNTED = ("requests", "cut or shortened", "trimmed", "without thinking", "with fewer tools", "with notes")
_WORDS = ("go on", "never touch the billing module", "¿y las demás?", "Does the parcel leave Leeds at noon?")
_TOOL_NAME = re.compile(r"\b(?:tool_\d+|late_\d+|zog)\b")
_ROUTES: tuple[tuple[DialectName, Backend], ...] = (
    ("anthropic_messages", CLAUDE), ("anthropic_messages", CLAUDE), ("anthropic_messages", GPT), ("openai_chat", GPT),
    ("openai_chat", CLAUDE), ("openai_responses", GPT), ("openai_responses", CLAUDE), ("gemini_generate", GEMINI),
    ("gemini_generate", GPT), ("bedrock_converse", GPT), ("ollama_chat", CLAUDE),
)  # fmt: skip


class _Inline(OffLoop):
    """Runs the work at once. Threads would only cost time here."""

    async def run(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        return work(*args, **more)


class _InlineCounter(Counter):
    """Counts each text once, and without a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str], int] = {}

    def count(self, text: str, encoding: EncodingName = "o200k_base") -> int:
        found = self._known.get((text, encoding))
        if found is None:
            found = self._known[text, encoding] = super().count(text, encoding)
            if len(self._known) > 20_000:
                self._known.clear()
        return found

    async def counts(self, texts: Sequence[str], encoding: EncodingName = "o200k_base") -> list[int]:
        return [self.count(text, encoding) for text in texts]


_OFF_LOOP = _Inline()


class History:
    """One session that is drawn with `random`, and planned request by request."""

    def __init__(self, random: Random, counter: Counter) -> None:
        self.random, self.talk, self.sent = random, Talk(), 0
        self.dialect, self.backend = random.choice(_ROUTES)
        self.limit = random.choice([None, None, random.randint(2_000, 20_000)])
        self.system = random.choice(["", "Be kind to every parcel."])
        self.thinks = random.choice(["never", "never", "unasked", "asked"])
        """Whether the model thinks. A model that thinks unasked does so from the beginning."""
        self.tools = dict(TOOLS) if random.random() < 0.8 else {}
        self._now, self._last_s = 0.0, -1e9
        self.tenant = Tenant(Key("k", "t"), Policy(team="t", context=self._policy()))
        self._memory, self._counter = OwnMemory(lambda: self._now), counter
        self._notes = NotesAtOnce(lambda: self._now)
        self.contexts, self._rules = self._worker(), ToolRules()
        self.counts = dict.fromkeys(
            ("requests", "cut or shortened", "trimmed", "without thinking", "with fewer tools", "with notes"), 0
        )
        self._signatures: dict[tuple[str, int], bytes] = {}

    def _policy(self) -> ContextPolicy:
        draw = self.random.random
        return ContextPolicy(
            max_input_tokens=self.limit,
            holdout=0.0,
            old_outputs="cut" if draw() < 0.9 else "keep",
            long_documents="relevant" if draw() < 0.8 else "keep",
            repeated_errors="once" if draw() < 0.8 else "keep",
            unused_tools="leave_out" if draw() < 0.8 else "keep",
            prompt_cache=self.random.choice(["auto", "auto", "auto", "client", "off"]),
            old_turns="summarize" if draw() < 0.8 else "keep",
        )

    def _worker(self) -> Contexts:
        def clock() -> float:
            return self._now

        strategy = InTurn(Relevance(FakeEmbedder(), _OFF_LOOP), RepeatedErrors())
        return Contexts(
            self._counter, off_loop=_OFF_LOOP, monotonic=clock, strategy=strategy,
            load_out=LoadOut(self._memory, _OFF_LOOP), old_turns=self._notes,
        )  # fmt: skip

    def grow(self) -> None:
        """Add one step to the session: a call and its output, words of the user, or a rewind."""
        random, talk = self.random, self.talk
        kind = random.choice(_RARE if random.random() < 0.06 else _KINDS)
        name, lines = f"shed/{random.randint(0, 30)}.txt", random.choice([0, 5, 40, 150])
        thinks = self.thinks != "never" and random.random() < 0.4
        if kind == "says":
            talk.says(random.choice(_WORDS))
        elif kind == "document":
            talk.says(f"{DOCUMENT}\n\nWho keeps the keys of shed {random.randint(0, 24) * 7}?")
        elif kind == "names a tool":
            talk.says(f"Use tool_{random.randint(0, 11)} if you must.")
        elif kind == "rewind" and len(talk.messages) > 20 and random.random() < 0.2:
            del talk.messages[random.randrange(1, len(talk.messages) // 2) * 2 + 1 :]
        elif kind == "quote":
            talk.step(name, "ok", thinks=thinks, old=listing(name).split("\n")[3].partition("\t")[2])
        elif kind == "thought" and self.thinks != "never":
            thought = {"type": "thinking", "thinking": "Hm. " * 30, "signature": f"x{random.random()}"}
            talk.messages.append({"role": "assistant", "content": [thought]})
            talk.messages.append({"role": "user", "content": "Go on."})
        else:
            output = listing(name, lines) if lines and kind != "short" else "nothing"
            output = {"error": ERROR, "read document": DOCUMENT}.get(kind, output)
            self._more(kind, talk.step(name, output, thinks=thinks))

    def _more(self, kind: str, place: int) -> None:
        """Change the call and the result that were added last. `place`: index of the message with the result."""
        random, messages = self.random, self.talk.messages
        called, content = messages[place - 1]["content"], messages[place]["content"]
        if kind == "beside":
            content.append({"type": "text", "text": "keep this"})
        elif kind == "picture":
            source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
            content[0]["content"] = [{"type": "image", "source": source}]
        elif kind == "two":
            call = {"type": "tool_use", "id": f"u{place}{random.random()}", "name": "zog", "input": {}}
            called.append(call)
            content.append({"type": "tool_result", "tool_use_id": call["id"], "content": listing("more", 40)})
        elif kind == "error":
            content[0]["is_error"] = True
        elif kind == "calls another tool" and self.tools:
            called[-1]["name"] = f"tool_{random.randint(0, 11)}"

    def _request(self) -> CompletionRequest:
        body = spoken(self.dialect, self.talk.messages, self.system, self.tools)
        if self.thinks == "asked" and self.dialect == "anthropic_messages":
            body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        body = {"model": self.backend.model, **body, **self._choice}
        return request_in(self.dialect, raw=orjson.dumps(body), request_id="req_1", controls=Controls(session="s"))

    async def ask(self) -> None:
        """Plan and check the request with all messages so far."""
        self._choice = self._chosen()
        if self.tools and self.random.random() < 0.01:
            self.tools = {**self.tools, f"late_{self.sent}": "Sends a parcel back. " * 40}
        request = self._request()
        self._now += self.random.choice([5, 5, 5, 30, 400, 4000])
        prefix = prefix_of(request, "k")
        try:
            plan = await self.contexts.plan_for(request, self.tenant, self.backend, prefix)
        except ContextTooLong:
            return
        wire = translators(request.dialect, self.backend.spoken)[0]
        sent = wire.body(plan.instead or request, "m", plan if plan.changes_body else None)
        body = orjson.loads(sent)
        self.sent += 1
        self._count(plan)
        CHECKS[wire.backend](body)
        self._check_words(wire.backend, request, plan, body)
        self._check_tools(wire.backend, request, plan, body)
        if wire.backend == "anthropic_messages":
            self._check_signatures(body, plan)
        self._check_untouched(request, plan, sent)
        await self._check_limit(request, plan)
        if not self.sent % 5:
            await self._check_other_worker(plan)
        self._learn(request, plan)
        self._last_s = self._now

    def _count(self, plan: ContextPlan) -> None:
        self.counts["requests"] += 1
        self.counts["cut or shortened"] += bool(plan.frozen and plan.replace)
        self.counts["trimmed"] += bool(plan.drop)
        self.counts["without thinking"] += bool(plan.no_thinking)
        self.counts["with fewer tools"] += plan.instead is not None
        self.counts["with notes"] += MARK in plan.replace.values()

    def _chosen(self) -> dict[str, Any]:
        """The choice of a tool, in a few requests of the dialects whose models accept it beside thinking."""
        if not self.tools or self.thinks != "never" or self.random.random() > 0.02:
            return {}
        name = self.random.choice(list(self.tools))
        match self.dialect:
            case "anthropic_messages":
                return {"tool_choice": self.random.choice([{"type": "any"}, {"type": "tool", "name": name}])}
            case "openai_chat":
                named = {"type": "function", "function": {"name": name}}
                return {"tool_choice": self.random.choice(["required", named])}
            case "openai_responses":
                return {"tool_choice": self.random.choice(["required", {"type": "function", "name": name}])}
        return {}

    def _check_untouched(self, request: CompletionRequest, plan: ContextPlan, sent: bytes) -> None:
        """The body changes only if the plan says so."""
        if plan.touched or plan.instead is not None or request.dialect not in ("openai_chat", "anthropic_messages"):
            return
        if self.dialect not in self.backend.spoken or (plan.marks is not None and plan.marks.changes):
            return
        given, now = orjson.loads(request.raw), orjson.loads(sent)
        if any(given[name] != now.get(name) for name in given if name != "model"):
            raise Breach("a request that fits was changed")

    async def _check_limit(self, request: CompletionRequest, plan: ContextPlan) -> None:
        """A request that fits is not trimmed."""
        if self.limit is None:
            if plan.drop:
                raise Breach("a request without a limit was trimmed")
            return
        if plan.frozen or not (plan.drop or plan.replace):
            return
        if (await sizes(request, self._counter, encoding_of(self.backend.model))).total <= self.limit:
            raise Breach("a request that fits was trimmed")

    async def _check_other_worker(self, plan: ContextPlan) -> None:
        """A worker that does not know the session leaves out the same parts."""
        request = self._request()
        again = await self._worker().plan_for(request, self.tenant, self.backend, prefix_of(request, "k"))
        if (again.drop, again.replace, again.no_thinking) != (plan.drop, plan.replace, plan.no_thinking):
            raise Breach("two workers leave out different parts")
        if _tools(again) != _tools(plan):
            raise Breach("two workers leave out different tools")

    def _check_words(
        self, dialect: DialectName, request: CompletionRequest, plan: ContextPlan, body: dict[str, Any]
    ) -> None:
        """The words of the user are sent, except for what the limit, or the relevance of documents, leaves out."""
        if plan.touched and not plan.frozen:
            return
        given = orjson.loads(translators(request.dialect, self.backend.spoken)[0].body(request, "m", None))
        old, new = user_texts(dialect, given), user_texts(dialect, body)
        if len(old) != len(new):
            raise Breach("words of the user are missing")
        for before, now in zip(old, new, strict=True):
            if now.partition(QUOTED)[0] != before and len(before) < LEAST_CHARACTERS:
                raise Breach("words of the user differ")

    def _check_tools(
        self, dialect: DialectName, request: CompletionRequest, plan: ContextPlan, body: dict[str, Any]
    ) -> None:
        if not self.tools or "tools" not in orjson.loads(request.raw):
            return
        history = orjson.dumps(self.talk.messages).decode()
        named = set(_TOOL_NAME.findall(history))
        if self._choice:
            named |= set(self.tools) if "required" in str(self._choice) or "any" in str(self._choice) else set()
            named |= {name for name in self.tools if f"'{name}'" in str(self._choice)}
        if plan.instead is not None and self.thinks != "never" and b'"thinking' in request.raw:
            raise Breach("definitions left before signed thinking")
        requests = sum(turn.role == "assistant" for turn in request.turns)
        cold = self._now - self._last_s > 300 and requests >= LEAST_REQUESTS
        self._rules.check(dialect, body, list(self.tools), named, cold=cold)

    def _check_signatures(self, body: dict[str, Any], plan: ContextPlan) -> None:
        """What precedes a signed thinking block must be what preceded it when the model wrote it: tools, system prompt
        and messages. The running tool loop is exempt if the limit does not leave room for it."""
        messages = body["messages"]
        spoken_at = max(at for at, each in enumerate(messages) if each["role"] == "user" and not _results(each))
        bare = [_bare(each) for each in messages]
        fixed = [_plain(each) for each in (*(body["tools"] if self.tools else ()), *_system(body))]
        # without tools of the client, the translation of chat writes a definition for each called tool
        for at, message in enumerate(messages):
            for block in blocks(message):
                trimmed = plan.drop | plan.replace.keys() and not plan.frozen
                if block["type"] != "thinking" or (at > spoken_at and trimmed):
                    continue
                history = orjson.dumps([fixed, bare[:at]])
                key = block["signature"], len(self.tools)  # the client itself changes its tools
                if self._signatures.setdefault(key, history) != history:
                    raise Breach("signed thinking has another history")

    def _learn(self, request: CompletionRequest, plan: ContextPlan) -> None:
        record = Record("r", self.tenant, "m", request.dialect, stream=False)
        record.route = Route((self.backend,), "", prefix=prefix_of(request, "k"))
        attempt = record.attempt(self.backend)
        attempt.outcome, attempt.marks, attempt.frozen = "ok", plan.marks, plan.frozen
        attempt.usage = Usage(100, cached_tokens=plan.tokens_after)
        self.contexts.learn(record)


def _tools(plan: ContextPlan) -> bytes:
    return b"" if plan.instead is None else orjson.dumps(plan.instead.body["tools"])


def _system(body: dict[str, Any]) -> list[dict[str, Any]]:
    system = body.get("system") or []
    return [{"type": "text", "text": system}] if type(system) is str else system


def _results(message: dict[str, Any]) -> bool:
    return any(block["type"] == "tool_result" for block in blocks(message))


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    """The message without cache marks, and with its text as a block."""
    content = message["content"]
    found = [{"type": "text", "text": content}] if type(content) is str else content
    return {**message, "content": [_plain(block) for block in found]}


async def check(seed: int, counter: Counter) -> dict[str, int]:
    """Check one history. Returns what was sent: kind of request → number. Raises Breach."""
    history = History(Random(seed), counter)
    for _ in range(history.random.randint(3, 60)):
        history.grow()
        if history.random.random() < 0.5:
            await history.ask()
    await history.ask()
    return history.counts


def main(count: int, first: int) -> None:
    counter = _InlineCounter()
    counter.load()
    sent, invalid, begin = TotalOf[str](), 0, time.monotonic()
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            sent.update(asyncio.run(check(seed, counter)))
        except Breach as breach:
            invalid += 1
            print(f"seed {seed}: {breach}", flush=True)
        if done % 100 == 0 or done == count:
            figures = ", ".join(f"{number} {name}" for name, number in sent.items())
            print(f"{done} histories, {invalid} invalid, {time.monotonic() - begin:.0f} s: {figures}", flush=True)
    sys.exit(invalid > 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
