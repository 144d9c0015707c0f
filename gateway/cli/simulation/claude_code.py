"""Reads the transcripts of Claude Code: one file per session in `~/.claude/projects/`, with one JSON object per line.

A transcript has the conversation, but neither the system prompt nor the definitions of tools. Each block of an answer
has its own line with the usage of the whole answer. So all lines of one answer are read as one call.

Each line names the line before it. The messages of a call are those on the path from the first line to the call's own
line. Lines of sub-agents, and of branches that the user left, are on other paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gateway.cli.simulation.call import LoggedCall, Object, moment, pico, reported


def is_row(row: Object) -> bool:
    return "leafUuid" in row or row.get("type") in _OTHER or ({"sessionId", "type"} <= row.keys() and _is_own(row))


def _is_own(row: Object) -> bool:
    """Whether `row`, which has a session id, belongs to a transcript of Claude Code. Exports of Langfuse have session
    ids too."""
    return "startTime" not in row and "start_time" not in row


_OTHER = ("summary", "file-history-snapshot", "queue-operation", "system", "progress")
_SYNTHETIC = "<synthetic>"
"""The model of answers that Claude Code wrote itself, for example after an error."""


def read(rows: Iterable[Object]) -> Iterator[LoggedCall]:
    """Read the calls of one transcript. Raises LogError."""
    parents: dict[str, tuple[str, dict[str, Any] | None]] = {}
    """Id of a line → (id of the line before it, its message; None for a line that no request contains)."""
    seen: set[str] = set()
    for row in rows:
        message, name = row.get("message"), str(row.get("uuid") or "")
        usable = isinstance(message, dict) and row.get("type") in ("user", "assistant")
        before = str(row.get("parentUuid") or "")
        parents[name] = before, _message(message) if usable and isinstance(message, dict) else None
        if not isinstance(message, dict) or row.get("type") != "assistant" or message.get("model") == _SYNTHETIC:
            continue
        answer = str(message.get("id") or row.get("requestId") or name)
        usage = reported(message.get("usage"))
        if answer in seen or usage is None:
            continue
        seen.add(answer)
        messages = _path(parents, before, answer)
        yield LoggedCall(
            answer,
            moment(row.get("timestamp")),
            str(message.get("model") or ""),
            usage,
            pico(row.get("costUSD")),
            str(row.get("agentId") or row["sessionId"]),
            "anthropic_messages",
            messages,
            len(messages),
            {"max_tokens": 32_000},
            hidden_tools=True,
        )


def _message(message: dict[str, Any]) -> dict[str, Any] | None:
    role, content = message.get("role"), message.get("content")
    return {"role": role, "content": content} if role in ("user", "assistant") and content else None


def _path(parents: dict[str, tuple[str, dict[str, Any] | None]], last: str, answer: str) -> list[dict[str, Any]]:
    """The messages up to the line `last`, oldest first. Neighbouring messages with the same role are joined, because
    the API requires it."""
    found: list[dict[str, Any]] = []
    passed: set[str] = set()
    while last in parents and last not in passed:
        passed.add(last)
        last, message = parents[last]
        if message is None:
            continue
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**message, "content": [*_blocks(message["content"]), *_blocks(found[-1]["content"])]}
        else:
            found.append(message)
    return found[::-1]


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
