"""Passes on a stream of legacy completions. The stream is read like a chat stream that has `text` in place of
`delta`."""

from __future__ import annotations

from typing import Any

from gateway.dialects.openai_chat.assembly import Assembly
from gateway.dialects.openai_chat.stream import ChatStream
from gateway.dialects.openai_completions.shape import as_chat_choice, as_text_choice, probability
from gateway.dialects.streams.text_run import TextRun
from gateway.dialects.streams.transcript import Transcript


class CompletionStream(ChatStream):
    """Implements `StreamReader` if client and backend use legacy completions."""

    def __init__(self, *, wants_usage: bool, wants_logprobs: bool = False) -> None:
        super().__init__(wants_usage=wants_usage, wants_logprobs=wants_logprobs, transcript=_Texts())


class _Texts(Transcript):
    mark = b'"text"'

    def _new_assembly(self) -> Assembly:
        return _TextAssembly()

    def _run_after(self, event: bytes, chunk: dict[str, Any]) -> TextRun | None:
        choices = chunk.get("choices") if chunk.get("usage") is None else None
        choice = choices[0] if type(choices) is list and len(choices) == 1 else None
        return (
            TextRun.around(event, chunk, choice, choice, "text")
            if type(choice) is dict and choice.get("text")
            else None
        )

    def says(self, chunk: dict[str, Any]) -> bool:
        choices = chunk.get("choices")
        said = type(choices) is list and any(type(choice) is dict and choice.get("text") for choice in choices)
        return said or super().says(chunk)


class _TextAssembly(Assembly):
    """Assembles chunks with text as if they were chat chunks. The result is the plain body of a legacy completion."""

    _probability = staticmethod(probability)

    def cut(self) -> dict[str, Any]:
        return {**super().cut(), "object": "text_completion"}

    def _last(self, index: int) -> dict[str, Any]:
        return {"index": index, "text": "", "logprobs": None, "finish_reason": "length"}

    def _add(self, chunk: dict[str, Any], size: int) -> None:
        choices = [_as_delta(choice) for choice in chunk.get("choices") or ()]
        super()._add({**chunk, "choices": choices}, size)

    def _rendered(self, completion: dict[str, Any]) -> dict[str, Any]:
        choices = [as_text_choice(choice) for choice in completion["choices"]]
        return {**completion, "object": "text_completion", "choices": choices}


def _as_delta(choice: dict[str, Any]) -> dict[str, Any]:
    if "text" not in choice:
        return choice
    chat = as_chat_choice(choice)
    return {**{name: value for name, value in chat.items() if name != "message"}, "delta": {"content": choice["text"]}}
