"""What we say in chat for an Anthropic client against what litellm, an independent translator, says."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest

from gateway.dialects.translate.messages_to_chat.translator import MessagesToChat
from gateway.domain.money.usage import Usage
from gateway.settings.environment import keep_litellm_offline
from tests.dialects.messages_samples import PNG, TOOL
from tests.dialects.samples import USER
from tests.support.requests import messages_request

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore::UserWarning")]  # of litellm's own types

translation = MessagesToChat()
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bilbao"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "17 °C"}
TEXT = {"type": "text", "text": "a"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
URL = {"type": "url", "url": "https://example.com/a.png"}

SAME: dict[str, dict[str, Any]] = {
    "smallest": {},
    "sampling": {"temperature": 0.3, "top_p": 0.9},
    "stops": {"stop_sequences": ["a", "b"]},
    "user": {"metadata": {"user_id": "u-1"}},
    "system": {"system": "Be brief."},
    "system in blocks": {"system": [TEXT, TEXT]},
    "images": {"messages": [{"role": "user", "content": [TEXT, {"type": "image", "source": PNG}]}]},
    "linked image": {"messages": [{"role": "user", "content": [{"type": "image", "source": URL}, TEXT]}]},
    "tools": {"tools": [TOOL]},
    "must use a tool": {"tools": [TOOL], "tool_choice": {"type": "any"}},
    "this tool": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "weather"}},
    "any tool or none": {"tools": [TOOL], "tool_choice": {"type": "auto"}},
    "loop": {
        "tools": [TOOL],
        "messages": [
            USER,
            {"role": "assistant", "content": [TEXT, CALL]},
            {"role": "user", "content": [RESULT]},
            {"role": "assistant", "content": [{**CALL, "id": "toolu_2"}, {**CALL, "id": "toolu_3"}]},
            {"role": "user", "content": [RESULT | {"tool_use_id": f"toolu_{number}"} for number in (2, 3)] + [TEXT]},
        ],
    },
}  # fmt: skip
FIELDS = ("temperature", "top_p", "stop", "user", "tool_choice", "stream")


def theirs() -> Any:
    keep_litellm_offline()
    from litellm.llms.anthropic.pass_through.adapters.transformation import LiteLLMAnthropicMessagesAdapter

    adapter: Any = LiteLLMAnthropicMessagesAdapter
    return adapter()


def essence(message: dict[str, Any]) -> dict[str, Any]:
    """Who says what and calls what; a text is a text, in a part or not."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    calls = [
        (call["id"], call["function"]["name"], orjson.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    parts = [(part["type"], part.get("text") or part["image_url"]["url"]) for part in content or ()]
    return {"role": message["role"], "parts": parts, "calls": calls, "to": message.get("tool_call_id")}


@pytest.mark.parametrize("name", SAME)
def test_a_request_is_said_as_litellm_says_it(name: str) -> None:
    body = {"model": "gpt", "max_tokens": 100, "messages": [USER], **deepcopy(SAME[name])}
    expected, _ = theirs().translate_anthropic_to_openai(deepcopy(body))
    said = translation.chat(messages_request(raw=orjson.dumps(body)), None)
    assert [essence(one) for one in said["messages"]] == [essence(one) for one in expected["messages"]]
    assert {field: said.get(field) for field in FIELDS} == {field: expected.get(field) for field in FIELDS}
    functions = [tool["function"] for tool in said.get("tools", ())]
    assert functions == [tool["function"] for tool in expected.get("tools", ())]


def test_a_schema_is_asked_for_as_litellm_asks() -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    expected = theirs().translate_anthropic_output_format_to_openai(form)
    said = translation.chat(messages_request(output_config={"format": form}), None)["response_format"]
    assert said["type"] == expected["type"]
    assert said["json_schema"]["schema"] == expected["json_schema"]["schema"]


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls"])
def test_an_answer_is_told_as_litellm_tells_it(finish: str) -> None:
    adapter = theirs()
    from litellm import ModelResponse

    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bilbao"}'}}
    message = {"role": "assistant", "content": "Hi", **({"tool_calls": [call]} if finish == "tool_calls" else {})}
    completion = {
        "id": "chatcmpl-7", "object": "chat.completion", "created": 1, "model": "gpt",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
                  "prompt_tokens_details": {"cached_tokens": 3}},
    }  # fmt: skip
    expected = adapter.translate_openai_response_to_anthropic(ModelResponse(**deepcopy(completion)))
    usage = Usage(input_tokens=6, cached_tokens=3, output_tokens=4)
    said = orjson.loads(translation.plain(messages_request(), completion, usage))
    blocks = [{name: value for name, value in block.items() if value is not None} for block in expected["content"]]
    assert said["content"] == blocks
    assert said["stop_reason"] == expected["stop_reason"]
    assert said["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
    assert said["usage"]["cache_read_input_tokens"] == expected["usage"]["cache_read_input_tokens"]
    assert said["usage"]["output_tokens"] == expected["usage"]["output_tokens"]
