"""Requests as clients also write them: every kind of tool, choice, content and setting, over each server dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.fakes.provider_script import Reply, Step
from tests.recorded.case import Case, Server, Spoken, json_body, server_name
from tests.recorded.cases import variants_of_chat, variants_of_messages, variants_of_responses
from tests.recorded.cases.prompts import CLIENT_PATHS, fields

VARIANTS: dict[Spoken, Mapping[str, dict[str, Any]]] = {
    "chat": variants_of_chat.ASKED,
    "responses": variants_of_responses.ASKED,
    "messages": variants_of_messages.ASKED,
}
_CUSTOM = {"id": "call_1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
_CUSTOM_CALL: Step = Reply(message={"role": "assistant", "content": None, "tool_calls": [_CUSTOM]})
_SHELL: Step = Reply(
    message={
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": '{"input": "ls -l"}'}}
        ],
    }
)
_SHELL_BLOCK: Step = Reply(
    blocks=({"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"input": "ls -l"}},)
)
_CALLED: dict[tuple[Spoken, Spoken], Step] = {
    ("chat", "chat"): _CUSTOM_CALL,
    ("responses", "chat"): _SHELL,
    ("responses", "messages"): _SHELL_BLOCK,
}
"""Client and server → how the server calls a custom tool."""


def cases() -> Iterator[Case]:
    for client, asked in VARIANTS.items():
        for speaks in VARIANTS:
            for what, more in asked.items():
                yield _case(client, speaks, what, more, False)
            if step := _CALLED.get((client, speaks)):
                for stream in (False, True):
                    yield _case(client, speaks, "custom tool called", asked["custom tool"], stream, step)


def _case(
    client: Spoken, speaks: Spoken, what: str, more: dict[str, Any], stream: bool, step: Step | None = None
) -> Case:
    mode = "stream" if stream else "plain"
    name = server_name("variant", client, speaks, what, mode)
    server = Server(name, speaks, step or Reply(text="OK"), open_to="plain")
    asked = {"model": server.name, **fields(client, "plain"), **more, **({"stream": True} if stream else {})}
    return Case(f"{client} over {speaks}, variant: {what}, {mode}", CLIENT_PATHS[client], json_body(**asked), (server,))
