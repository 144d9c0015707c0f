"""Generated chat requests, and answers of vendors to them, for comparisons with another translator."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

WORDS = (
    *("What is the tide at noon?", "¿Qué hora es en Bilbao?", "Você pode resumir isto?", "日本語 🌈"),
    *('naïve “quotes” & \\ "b"\n', '{"a": 1}', "a"),
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
TOOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "look": ({"city": {"type": "string", "description": "¿Dónde?"}}, {"city": "São Paulo"}),
    "measure": ({"n": {"type": "integer"}, "unit": {"type": "string", "enum": ["C", "F"]}}, {"n": 3, "unit": "C"}),
    "tag_all": ({"tags": {"type": "array", "items": {"type": "string"}}}, {"tags": ["a", "ñ"]}),
}
"""Name of a function → the properties of its parameters, and arguments."""


def text(random: Random) -> str:
    return " ".join(random.choices(WORDS, k=random.randint(1, 2)))


def schema(name: str) -> dict[str, Any]:
    properties = TOOLS[name][0]
    return {"type": "object", "properties": properties, "required": list(properties)[:1]}


def request(seed: int) -> dict[str, Any]:
    """A chat request without its model."""
    random = Random(seed)
    tools = random.sample(list(TOOLS), random.choice((0, 0, 1, 2)))
    body: dict[str, Any] = {"messages": _messages(random, tools)}
    if tools:
        functions = [{"name": name, "description": text(random), "parameters": schema(name)} for name in tools]
        body["tools"] = [{"type": "function", "function": function} for function in functions]
        this = {"type": "function", "function": {"name": tools[0]}}
        if choice := random.choice((None, None, "auto", "required", "none", this)):
            body["tool_choice"] = choice
    elif random.random() < 0.3:
        form = {"name": "x", "schema": schema(random.choice(list(TOOLS)))}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if random.random() < 0.5:
        body["max_tokens"] = random.randint(1, 4000)
    if random.random() < 0.4:
        body[random.choice(("temperature", "top_p"))] = random.choice((0, 0.25, 0.5, 1))
    if random.random() < 0.3:
        body["stop"] = random.choice(("END", ["a", "ñ"]))
    if random.random() < 0.2:
        body |= {"reasoning_effort": random.choice(("low", "medium", "high")), "max_tokens": 30_000}
    return body


def _messages(random: Random, tools: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if random.random() < 0.4:
        found.append({"role": "system", "content": text(random)})
    for turn in range(random.randint(1, 3)):
        words = text(random)
        parts = [{"type": "text", "text": words}, PICTURE] if random.random() < 0.3 else words
        found.append({"role": "user", "content": parts})
        if tools and random.random() < 0.6:
            called = random.choices(tools, k=random.choice((1, 1, 2)))
            calls = [call(name, f"call_{turn}_{place}") for place, name in enumerate(called)]
            words = random.choice((None, text(random)))
            found.append({"role": "assistant", "content": words, "tool_calls": calls})
            for each in calls:
                result = random.choice((text(random), '{"ok": true}'))
                found.append({"role": "tool", "tool_call_id": each["id"], "content": result})
        if random.random() < 0.5:
            found += [{"role": "assistant", "content": text(random)}, {"role": "user", "content": text(random)}]
    return found


def call(name: str, call_id: str) -> dict[str, Any]:
    function = {"name": name, "arguments": orjson.dumps(TOOLS[name][1]).decode()}
    return {"id": call_id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model says, in no vendor's form."""

    texts: list[str]
    thought: str
    calls: list[str]
    """Names of functions."""
    cut: bool
    """Whether the output limit ended it."""
    input_tokens: int
    cached_tokens: int
    output_tokens: int

    def as_messages(self) -> dict[str, Any]:
        """In Anthropic's form."""
        thought = [{"type": "thinking", "thinking": self.thought, "signature": "c2ln"}] if self.thought else []
        texts = [{"type": "text", "text": each} for each in self.texts]
        calls = [
            {"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": TOOLS[name][1]}
            for place, name in enumerate(self.calls)
        ]
        usage = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        cached = {"cache_read_input_tokens": self.cached_tokens, "cache_creation_input_tokens": 0}
        about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        stop = "max_tokens" if self.cut else "tool_use" if calls else "end_turn"
        return {**about, "content": [*thought, *texts, *calls], "stop_reason": stop, "usage": {**usage, **cached}}

    def as_gemini(self) -> dict[str, Any]:
        thought = [{"text": self.thought, "thought": True}] if self.thought else []
        calls = [{"functionCall": {"name": name, "args": TOOLS[name][1]}} for name in self.calls]
        parts = [*thought, *({"text": each} for each in self.texts), *calls]
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        all_input = self.input_tokens + self.cached_tokens
        usage = {
            "promptTokenCount": all_input,
            "candidatesTokenCount": self.output_tokens,
            "totalTokenCount": all_input + self.output_tokens,
            **({"cachedContentTokenCount": self.cached_tokens} if self.cached_tokens else {}),
        }
        finish = "MAX_TOKENS" if self.cut else "STOP"
        return {"candidates": [{**candidate, "finishReason": finish}], "usageMetadata": usage, "modelVersion": "m"}

    def as_converse(self) -> dict[str, Any]:
        thought = {"reasoningContent": {"reasoningText": {"text": self.thought, "signature": "c2ln"}}}
        calls = [
            {"toolUse": {"toolUseId": f"toolu_{place}", "name": name, "input": TOOLS[name][1]}}
            for place, name in enumerate(self.calls)
        ]
        content = [*([thought] if self.thought else []), *({"text": each} for each in self.texts), *calls]
        usage = {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "totalTokens": self.input_tokens + self.cached_tokens + self.output_tokens,
            "cacheReadInputTokens": self.cached_tokens,
            "cacheWriteInputTokens": 0,
        }
        stop = "max_tokens" if self.cut else "tool_use" if calls else "end_turn"
        message = {"role": "assistant", "content": content}
        return {"output": {"message": message}, "stopReason": stop, "usage": usage, "metrics": {"latencyMs": 1}}


def reply(seed: int) -> Reply:
    random = Random(seed)
    calls = random.choices(list(TOOLS), k=random.choice((0, 0, 1, 2)))
    texts = [text(random) for _ in range(random.choice((0, 1, 2)) if calls else random.choice((1, 2)))]
    thought = text(random) if random.random() < 0.3 else ""
    cached = random.choice((0, 7))
    return Reply(texts, thought, calls, random.random() < 0.2, random.randint(1, 99), cached, random.randint(1, 99))
