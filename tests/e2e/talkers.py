"""The vendors' SDKs behind one face, so that one test asks every client dialect the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import anthropic
import openai
import orjson
from openai import AsyncOpenAI

TOOL = "lookup"
_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


@dataclass
class Answer:
    """A whole answer."""

    text: str
    input_tokens: int
    output_tokens: int
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Name and parsed arguments of each tool call."""
    headers: Any = None


class Talker(Protocol):
    """One client dialect, asking over one key."""

    def __init__(self, base: str, key: str) -> None: ...

    async def complete(self, model: str, text: str, **more: Any) -> Answer: ...

    def stream(self, model: str, text: str, **more: Any) -> AsyncIterator[str]:
        """Pieces of the text; raises what the SDK raises. `last` is set once it ended in order."""
        ...

    last: Answer | None

    async def use_tool(self, model: str, text: str) -> tuple[Answer, Answer]:
        """Asked with a tool; then told its result, `done: ` and the arguments."""
        ...

    async def close(self) -> None: ...


class _OpenAI:
    def __init__(self, base: str, key: str) -> None:
        self.sdk = AsyncOpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0)
        self.last: Answer | None = None

    async def close(self) -> None:
        await self.sdk.close()


class Chat(_OpenAI):
    async def complete(self, model: str, text: str, **more: Any) -> Answer:
        raw = await self.sdk.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": text}], **more
        )
        return self._answer(raw.parse(), raw.headers)

    @staticmethod
    def _answer(found: Any, headers: Any = None) -> Answer:
        message, usage = found.choices[0].message, found.usage
        calls = [(call.function.name, _parsed(call.function.arguments)) for call in message.tool_calls or ()]
        return Answer(message.content or "", usage.prompt_tokens, usage.completion_tokens, calls, headers)

    async def stream(self, model: str, text: str, **more: Any) -> AsyncIterator[str]:
        self.last = None
        async with self.sdk.chat.completions.stream(
            model=model, messages=[{"role": "user", "content": text}], stream_options={"include_usage": True}, **more
        ) as events:
            async for event in events:
                if event.type == "content.delta":
                    yield event.delta
            found = await events.get_final_completion()
        if found.choices[0].finish_reason is None:
            raise ConnectionError("the stream ended without a reason")
        self.last = self._answer(found)

    async def use_tool(self, model: str, text: str) -> tuple[Answer, Answer]:
        tools: list[Any] = [{"type": "function", "function": {"name": TOOL, "parameters": _SCHEMA}}]
        messages: list[Any] = [{"role": "user", "content": text}]
        first = await self.sdk.chat.completions.create(model=model, messages=messages, tools=tools)
        call: Any = (first.choices[0].message.tool_calls or [None])[0]
        messages += [
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": f"done: {call.function.arguments}"},
        ]
        second = await self.sdk.chat.completions.create(model=model, messages=messages, tools=tools)
        return self._answer(first), self._answer(second)


class Responses(_OpenAI):
    async def complete(self, model: str, text: str, **more: Any) -> Answer:
        raw = await self.sdk.responses.with_raw_response.create(model=model, input=text, **more)
        return self._answer(raw.parse(), raw.headers)

    @staticmethod
    def _answer(found: Any, headers: Any = None) -> Answer:
        calls = [(item.name, _parsed(item.arguments)) for item in found.output if item.type == "function_call"]
        return Answer(found.output_text, found.usage.input_tokens, found.usage.output_tokens, calls, headers)

    async def stream(self, model: str, text: str, **more: Any) -> AsyncIterator[str]:
        self.last = None
        async with self.sdk.responses.stream(model=model, input=text, **more) as events:
            async for event in events:
                if event.type == "response.output_text.delta":
                    yield event.delta
                elif event.type in ("response.failed", "error"):
                    raise ConnectionError(str(event))
            self.last = self._answer(await events.get_final_response())

    async def use_tool(self, model: str, text: str) -> tuple[Answer, Answer]:
        tools: list[Any] = [{"type": "function", "name": TOOL, "parameters": _SCHEMA, "strict": False}]
        asked: list[Any] = [{"role": "user", "content": text}]
        first = await self.sdk.responses.create(model=model, input=asked, tools=tools)
        call: Any = next(item for item in first.output if item.type == "function_call")
        asked += [item.model_dump(exclude_none=True) for item in first.output]
        asked.append({"type": "function_call_output", "call_id": call.call_id, "output": f"done: {call.arguments}"})
        second = await self.sdk.responses.create(model=model, input=asked, tools=tools)
        return self._answer(first), self._answer(second)


class Messages:
    def __init__(self, base: str, key: str) -> None:
        self.sdk = anthropic.AsyncAnthropic(base_url=base, api_key=key, max_retries=0)
        self.last: Answer | None = None

    async def close(self) -> None:
        await self.sdk.close()

    async def complete(self, model: str, text: str, **more: Any) -> Answer:
        more.setdefault("max_tokens", 1000)
        raw = await self.sdk.messages.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": text}], **more
        )
        return self._answer(await raw.parse(), raw.headers)

    @staticmethod
    def _answer(found: Any, headers: Any = None) -> Answer:
        text = "".join(block.text for block in found.content if block.type == "text")
        calls = [(block.name, block.input) for block in found.content if block.type == "tool_use"]
        return Answer(text, found.usage.input_tokens, found.usage.output_tokens, calls, headers)

    async def stream(self, model: str, text: str, **more: Any) -> AsyncIterator[str]:
        self.last = None
        more.setdefault("max_tokens", 1000)
        ended = False
        async with self.sdk.messages.stream(
            model=model, messages=[{"role": "user", "content": text}], **more
        ) as events:
            async for event in events:
                if event.type == "text":
                    yield event.text
                ended = ended or event.type == "message_stop"
            if not ended:
                raise ConnectionError("the stream ended without message_stop")
            self.last = self._answer(await events.get_final_message())

    async def use_tool(self, model: str, text: str) -> tuple[Answer, Answer]:
        tools: list[Any] = [{"name": TOOL, "input_schema": _SCHEMA}]
        asked: list[Any] = [{"role": "user", "content": text}]
        first = await self.sdk.messages.create(model=model, messages=asked, tools=tools, max_tokens=500)
        call: Any = next(block for block in first.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": f"done: {call.input}"}
        asked += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = await self.sdk.messages.create(model=model, messages=asked, tools=tools, max_tokens=500)
        return self._answer(first), self._answer(second)


TALKERS: dict[str, type[Chat] | type[Responses] | type[Messages]] = {
    "chat": Chat,
    "responses": Responses,
    "messages": Messages,
}
ERRORS = (openai.APIError, anthropic.APIError, ConnectionError)
"""What an SDK raises when an answer did not come whole."""


def _parsed(arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(arguments)
    return found
