"""Finds tool loops without progress: at the end of a request's conversation, the same calls repeatedly have the same
errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from gateway.domain.request import CompletionRequest

_ERROR = re.compile(
    r"\b(?:error|errno|exception|traceback|fail(?:ed|ure)|fatal|denied|refused|rejected|not found|no such file|invalid|"
    r"timed out|exit (?:code|status):? ?[1-9])"
)
_ERRORS = (
    *("err", "exception", "traceback", "fail", "fatal", "denied", "refused", "rejected", "not found", "no such file"),
    *("invalid", "timed out", "exit "),
)
"""Every match of `_ERROR` contains one of these texts, so a result without them is not searched for `_ERROR`. The
search for these texts takes a tenth of the time, and most results contain none of them."""
_ENDS = 2000
"""Number of characters at each end of a tool result that are searched for words that mean an error."""


class Repetition(NamedTuple):
    """A repetition at the end of a conversation. `rounds`: how many successive rounds have equal calls and errors.
    `tool`: one of the called tools."""

    rounds: int
    tool: str


class _Round(NamedTuple):
    """The tool calls of one turn (names with arguments), and the texts of their results."""

    calls: tuple[bytes, ...]
    results: tuple[bytes, ...]
    tool: str
    failed: bool


def repetition(request: CompletionRequest, most: int) -> Repetition | None:
    """How often the last round of the conversation is repeated without interruption. A round consists of tool calls and
    their results. None if the last round has no failed call.

    `most`: maximum number of rounds to count.
    """
    rounds = _rounds(request)
    last = next(rounds, None)
    if last is None or not last.failed:
        return None
    count = 1
    while count < most and (earlier := next(rounds, None)) is not None:
        if (earlier.calls, earlier.results) != (last.calls, last.results):
            break
        count += 1
    return Repetition(count, last.tool)


def _rounds(request: CompletionRequest) -> Iterator[_Round]:
    """Yield the rounds, beginning with the last one. Stops at the last turn in which the user wrote something."""
    items = _items(request)
    calls: list[tuple[str, bytes]] = []
    results: list[tuple[bytes, bool]] = []
    for turn in reversed(request.turns):
        item = items[turn.index] if 0 <= turn.index < len(items) else None
        if not isinstance(item, dict) or turn.instructs or turn.role == "system":
            break
        if turn.results or turn.role == "tool":
            if calls:
                yield _round(calls, results)
                calls, results = [], []
            results += _results(item)
        elif turn.calls and results:
            calls += _calls(item)
        elif turn.role == "user" or not results:
            break
    if calls and results:
        yield _round(calls, results)


def _round(calls: Sequence[tuple[str, bytes]], results: Sequence[tuple[bytes, bool]]) -> _Round:
    texts = tuple(sorted(text for text, _ in results))
    return _Round(tuple(sorted(call for _, call in calls)), texts, calls[0][0], any(failed for _, failed in results))


def _items(request: CompletionRequest) -> Sequence[Any]:
    found = request.body.get("input" if request.dialect == "openai_responses" else "messages")
    return found if isinstance(found, list) else ()


def _calls(item: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield for each call in a message or an item: the name, and the name together with the arguments."""
    if "arguments" in item or "input" in item:  # Responses
        yield _call(item.get("name"), item.get("arguments", item.get("input")))
    for call in _objects(item.get("tool_calls")):  # chat
        function = call.get("function") or call.get("custom")
        if isinstance(function, dict):
            yield _call(function.get("name"), function.get("arguments", function.get("input")))
    for block in _objects(item.get("content")):  # messages
        if block.get("type") == "tool_use":
            yield _call(block.get("name"), block.get("input"))


def _call(name: Any, arguments: Any) -> tuple[str, bytes]:
    return str(name), orjson.dumps([name, arguments], option=orjson.OPT_SORT_KEYS)


def _results(item: Mapping[str, Any]) -> Iterator[tuple[bytes, bool]]:
    """Yield for each result in a message or an item: the text, and whether the call failed."""
    blocks = [block for block in _objects(item.get("content")) if block.get("type") == "tool_result"]
    if not blocks:
        content = item.get("output", item.get("content"))
        yield _result(content, failed=None)
    for block in blocks:
        yield _result(block.get("content"), failed=block.get("is_error") if "is_error" in block else None)


def _result(content: Any, *, failed: Any) -> tuple[bytes, bool]:
    """The text of a result, and whether the call failed. `failed`: the client's own mark. If there is no mark, the call
    counts as failed if the text contains a word for an error."""
    text = content if isinstance(content, str) else orjson.dumps(content).decode()
    known = failed if isinstance(failed, bool) else _names_error(text[:_ENDS] + text[-_ENDS:])
    return text.encode("utf-8", "surrogatepass"), known


def _names_error(text: str) -> bool:
    lower = text.lower()
    return any(each in lower for each in _ERRORS) and _ERROR.search(lower) is not None


def _objects(value: Any) -> Sequence[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else ()
