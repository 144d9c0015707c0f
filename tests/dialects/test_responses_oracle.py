"""What litellm makes of Responses, in both directions, beside what we make of it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import orjson
import pytest

from gateway.dialects.answers.usage import openai_usage
from tests.dialects.responses_samples import chat_fields_of, responses_request, translation

REQUEST = """
import sys, orjson
from litellm.responses.litellm_completion_transformation import transformation
Config = transformation.LiteLLMCompletionResponsesConfig
body = orjson.loads(sys.stdin.buffer.read())
model, given = body.pop("model"), body.pop("input")
said = Config.transform_responses_api_request_to_chat_completion_request(model, given, body)
said["messages"] = [m if type(m) is dict else m.model_dump() for m in said["messages"]]
sys.stdout.buffer.write(orjson.dumps(said, default=lambda m: m.model_dump()))
"""
ANSWER = """
import sys, orjson
from litellm.responses.litellm_completion_transformation import transformation
Config = transformation.LiteLLMCompletionResponsesConfig
from litellm.types.utils import ModelResponse
completion = ModelResponse(**orjson.loads(sys.stdin.buffer.read()))
said = Config.transform_chat_completion_response_to_responses_api_response("hello", {}, completion)
sys.stdout.buffer.write(said.model_dump_json().encode())
"""
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}
BODY: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": "https://a/b.png", "detail": "low"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1 }'},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]},
        {"role": "user", "content": "Sure?"},
    ],
    "tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": False,
    "temperature": 0.5, "top_p": 0.9, "user": "u", "reasoning": {"effort": "low"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
}  # fmt: skip


def litellm(script: str, given: Any) -> Any:
    """Run apart: it builds its models on first use, and warns of some."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=orjson.dumps(given),
        stdout=subprocess.PIPE,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        check=True,
    )
    return orjson.loads(done.stdout)


def essence(message: dict[str, Any]) -> dict[str, Any]:
    """Who says what and calls what; a text is a text, in a part or not."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"])
             for call in message.get("tool_calls") or ()]  # fmt: skip
    return {"role": message["role"], "content": content or [], "calls": calls, "to": message.get("tool_call_id")}


@pytest.mark.extras
def test_a_request_is_said_as_litellm_says_it() -> None:
    theirs, ours = litellm(REQUEST, BODY), chat_fields_of(**BODY)
    assert [essence(message) for message in ours["messages"]] == [essence(message) for message in theirs["messages"]]
    for name in ("temperature", "top_p", "parallel_tool_calls", "tool_choice", "user", "reasoning_effort"):
        assert ours[name] == theirs[name], name
    ours_tool, theirs_tool = ours["tools"][0]["function"], theirs["tools"][0]["function"]
    assert ours_tool == {name: theirs_tool[name] for name in ours_tool}
    assert ours["response_format"]["json_schema"]["schema"] == theirs["response_format"]["json_schema"]["schema"]


@pytest.mark.extras
def test_an_answer_is_told_as_litellm_tells_it() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1 }'}}]
    message = {"role": "assistant", "content": "I look.", "tool_calls": calls}
    usage = {
        "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1},
    }  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    completion = {"id": "x", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice]}
    theirs = litellm(ANSWER, {**completion, "usage": usage})
    ours = orjson.loads(translation.plain(responses_request(), completion, openai_usage(usage)))
    names = ("type", "role", "call_id", "name", "arguments", "status")

    def items_of(response: dict[str, Any]) -> list[Any]:
        return [
            ({name: item.get(name) for name in names}, [part["text"] for part in item.get("content") or ()])
            for item in response["output"]
        ]

    assert items_of(ours) == items_of(theirs)
    assert (ours["status"], ours["created_at"], ours["model"]) == (
        theirs["status"], theirs["created_at"], theirs["model"],
    )  # fmt: skip
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert ours["usage"][name] == theirs["usage"][name]
    assert ours["usage"]["input_tokens_details"]["cached_tokens"] == 3
    assert theirs["usage"]["input_tokens_details"]["cached_tokens"] == 3
