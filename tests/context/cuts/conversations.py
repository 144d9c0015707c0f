"""Agent sessions as their clients send them, request by request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.dialects.clients import DIALECTS
from gateway.domain.request import CompletionRequest, Controls, DialectName


def listing(name: str, lines: int = 150) -> str:
    """About 1,500 tokens; every line is another."""
    return "\n".join(f"{number}\tthe parcel {name}-{number} leaves Leeds at noon" for number in range(lines))


@dataclass
class Talk:
    """A session in Anthropic's dialect; tools have names that no rule could know."""

    messages: list[dict[str, Any]] = field(default_factory=lambda: [{"role": "user", "content": "Find the parcels."}])
    calls: int = 0

    def step(self, name: str, output: str | None = None, *, thinks: bool = False, **more: str) -> int:
        """A call and its output. Returns the index of the output's message."""
        self.calls += 1
        call = {"type": "tool_use", "id": f"t{self.calls}", "name": "zog", "input": {"gli": name, **more}}
        thought = [{"type": "thinking", "thinking": "Where is it? " * 20, "signature": f"s{self.calls}"}]
        self.messages.append({"role": "assistant", "content": [*(thought if thinks else []), call]})
        result = {"type": "tool_result", "tool_use_id": f"t{self.calls}", "content": output or listing(name)}
        self.messages.append({"role": "user", "content": [result]})
        return len(self.messages) - 1

    def steps(self, count: int, *, thinks: bool = False) -> None:
        for number in range(count):
            self.step(f"shed/{self.calls}-{number}.txt", thinks=thinks)

    def says(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
        self.messages.append({"role": "user", "content": text})

    def request(self, messages: int | None = None, **more: Any) -> CompletionRequest:
        """The request with the first `messages` messages; None: with all."""
        sent = {"model": "claude-opus-4-6", "max_tokens": 99, "messages": self.messages[:messages], **more}
        return parsed("anthropic_messages", sent)

    def chat(self) -> CompletionRequest:
        """The same session in OpenAI's chat dialect."""
        messages: list[dict[str, Any]] = []
        for message in self.messages:
            content = message["content"]
            if type(content) is str or content[0]["type"] == "text":
                messages.append(message)
            elif message["role"] == "user":
                (result,) = content
                messages.append({"role": "tool", "tool_call_id": result["tool_use_id"], "content": result["content"]})
            else:
                call = content[-1]
                function = {"name": call["name"], "arguments": orjson.dumps(call["input"]).decode()}
                calls = [{"id": call["id"], "type": "function", "function": function}]
                messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        return parsed("openai_chat", {"model": "gpt-5.6", "messages": messages})


def parsed(dialect: DialectName, body: dict[str, Any]) -> CompletionRequest:
    return DIALECTS[dialect].parse(orjson.dumps(body), "req_1", Controls(session="s"), {})
