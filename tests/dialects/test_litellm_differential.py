"""Generated requests and answers, translated by us and by litellm: every difference is one that is listed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import takewhile
from typing import Any, NamedTuple

import httpx
import orjson
import pytest

from gateway.dialects.registry import wire
from gateway.settings.environment import keep_litellm_offline
from tests.dialects import test_anthropic_oracle as anthropic
from tests.dialects.generated_chats import reply, request
from tests.support.requests import chat_request

pytestmark = [
    pytest.mark.extras,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),  # of litellm's own types
]
SEEDS = range(200)
CLAUDE, GEMINI, NOVA = anthropic.OLD, "gemini-2.5-flash", "amazon.nova-pro-v1:0"
ABSENT = "(absent)"
Body = dict[str, Any]


class Known(NamedTuple):
    """A difference on purpose. `path`: where. `holds`: whether request, our value and litellm's show this difference
    and no other."""

    path: str
    why: str
    holds: Callable[[Body, Any, Any], bool]


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, our value, litellm's value) where they differ."""
    if type(ours) is dict and type(theirs) is dict:
        for name in sorted({*ours, *theirs}):
            yield from differences(ours.get(name, ABSENT), theirs.get(name, ABSENT), f"{path}.{name}".lstrip("."))
    elif type(ours) is list and type(theirs) is list and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from differences(one, other, f"{path}[]")
    elif ours != theirs:
        yield path, ours, theirs


def unexplained(
    translated: Callable[[Body], tuple[Any, Any]], given: Callable[[int], Body], known: tuple[Known, ...]
) -> list[str]:
    """The differences that no entry of `known` explains, and the entries that explained none."""
    found, used = [], set()
    for seed in SEEDS:
        body = given(seed)
        for path, ours, theirs in differences(*translated(body)):
            why = next((each.why for each in known if each.path == path and each.holds(body, ours, theirs)), None)
            used.add(why)
            if why is None:
                found.append(f"case {seed}, {path}: ours {ours!r}, litellm's {theirs!r}")
    return found + [f"not found any more: {each.why}" for each in known if each.why not in used]


def sent(backend: Any, model: str, body: Body) -> Any:
    return orjson.loads(wire("openai_chat", backend).body(chat_request(**deepcopy(body)), model, None))


def mapped(model: str, provider: str, body: Body) -> tuple[list[Any], Body]:
    """The messages, and litellm's first step: the other fields under the provider's names."""
    keep_litellm_offline()
    from litellm.utils import get_optional_params

    fields = deepcopy(body)
    messages = fields.pop("messages")
    return messages, get_optional_params(model=model, custom_llm_provider=provider, messages=messages, **fields)


def answers_calls(messages: list[Body]) -> bool:
    """Whether the turn of the user at the end has results of calls."""
    later = takewhile(lambda message: message["role"] != "assistant", reversed(messages))
    return any(message["role"] == "tool" for message in later)


ANTHROPIC = (
    Known(
        "max_tokens",
        "Without a limit, 32,000 tokens are asked for, which every backend of the model allows.",
        lambda body, ours, theirs: "max_tokens" not in body and ours == 32_000,
    ),
    Known(
        "thinking",
        "A request that forces a tool cannot think. platform.claude.com/docs/en/build-with-claude/extended-thinking",
        lambda body, ours, theirs: ours == ABSENT and body.get("tool_choice") not in (None, "auto", "none"),
    ),
    Known(
        "thinking",
        "A turn that began with a call without a thought goes on without one. The same page.",
        lambda body, ours, theirs: ours == ABSENT and answers_calls(body["messages"]),
    ),
    Known(
        "temperature",
        "A model that thinks accepts no other temperature than 1. The same page.",
        lambda body, ours, theirs: ours == ABSENT and "reasoning_effort" in body,
    ),
    Known(
        "top_p",
        "A model that thinks accepts top_p only from 0.95 to 1. The same page.",
        lambda body, ours, theirs: ours == ABSENT and "reasoning_effort" in body,
    ),
)


def test_requests_over_anthropic() -> None:
    def translated(body: Body) -> tuple[Any, Any]:
        return anthropic.ours(deepcopy(body)), anthropic.oracle(body)

    assert unexplained(translated, request, ANTHROPIC) == []


NAMES = {
    "function_call": "functionCall", "function_response": "functionResponse", "inline_data": "inlineData",
    "mime_type": "mimeType", "system_instruction": "systemInstruction", "max_output_tokens": "maxOutputTokens",
    "stop_sequences": "stopSequences", "top_p": "topP", "response_mime_type": "responseMimeType",
    "response_json_schema": "responseJsonSchema", "function_declarations": "functionDeclarations",
    "allowed_function_names": "allowedFunctionNames", "parameters": "parametersJsonSchema",
}  # fmt: skip
"""litellm's names of Gemini's fields → those of Google's reference. Google reads both spellings, and the schema of a
function in either of two fields."""


def renamed(value: Any) -> Any:
    if type(value) is dict:
        return {NAMES.get(name, name): renamed(each) for name, each in value.items()}
    return [renamed(each) for each in value] if type(value) is list else value


def as_we_write(given: Body) -> Body:
    """litellm's request in our form where Google reads both alike: neighbouring contents of one role are one content,
    and the text of a result is under `result`. ai.google.dev/api/caching#FunctionResponse"""
    found = renamed(given)
    contents: list[Body] = []
    for content in found["contents"]:
        for part in content["parts"]:
            response = part.get("functionResponse", {}).get("response", {})
            if "content" in response:
                response["result"] = response.pop("content")
        if contents and contents[-1]["role"] == content["role"]:
            contents[-1]["parts"] += content["parts"]
        else:
            contents.append(content)
    return {**found, "contents": contents}


def once(parts: Any) -> list[Any]:
    """The parts without calls that repeat another one."""
    return [part for place, part in enumerate(parts) if "functionCall" not in part or part not in parts[:place]]


GOOGLE = (
    Known(
        "generationConfig.thinkingConfig.thinkingBudget",
        "The budgets are those of ai.google.dev/gemini-api/docs/openai: 1,024, 8,192 and 24,576 tokens.",
        lambda body, ours, theirs: ours == {"low": 1024, "medium": 8192, "high": 24_576}[body["reasoning_effort"]],
    ),
    Known(
        "contents[].parts",
        "litellm drops a call that equals another one of its message; its result then has no call.",
        lambda body, ours, theirs: once(ours) == theirs,
    ),
)


def test_requests_over_gemini() -> None:
    def translated(body: Body) -> tuple[Any, Any]:
        messages, params = mapped(GEMINI, "gemini", body)
        from litellm.llms.vertex_ai.gemini.transformation import _transform_request_body

        theirs = _transform_request_body(
            messages=messages, model=GEMINI, optional_params=params, custom_llm_provider="gemini", litellm_params={},
            cached_content=None,
        )  # fmt: skip
        return sent("gemini_generate", GEMINI, body), as_we_write(orjson.loads(orjson.dumps(theirs)))

    assert unexplained(translated, request, GOOGLE) == []


AWS = (
    Known(
        "additionalModelRequestFields",
        "litellm sends its own flag for streams to the model.",
        lambda body, ours, theirs: ours == ABSENT and theirs == {"stream": False},
    ),
    Known(
        "inferenceConfig",
        "litellm sends an empty object.",
        lambda body, ours, theirs: ours == ABSENT and theirs == {},
    ),
    Known(
        "outputConfig",
        "A schema or an effort is sent in the field that Converse has for it, not as a tool or not at all. "
        "docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_OutputConfig.html",
        lambda body, ours, theirs: theirs == ABSENT and not {"response_format", "reasoning_effort"}.isdisjoint(body),
    ),
    Known(
        "toolConfig",
        "litellm makes a schema a tool that the model must call.",
        lambda body, ours, theirs: ours == ABSENT and "response_format" in body,
    ),
    Known(
        "toolConfig",
        "Converse has no choice `none`: the tools are left out, so that none is called. "
        "docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolChoice.html",
        lambda body, ours, theirs: ours == ABSENT and body.get("tool_choice") == "none",
    ),
)


def test_requests_over_converse() -> None:
    def translated(body: Body) -> tuple[Any, Any]:
        messages, params = mapped(NOVA, "bedrock", {**body, "drop_params": True})
        from litellm.llms.bedrock.chat.converse_transformation import AmazonConverseConfig

        theirs = AmazonConverseConfig().transform_request(NOVA, messages, params, {}, {})
        return sent("bedrock_converse", NOVA, body), orjson.loads(orjson.dumps(theirs))

    assert unexplained(translated, request, AWS) == []


class Silent:
    """Takes litellm's log lines."""

    def __init__(self) -> None:
        self.optional_params: Body = {}
        self.litellm_params: Body = {}
        self.model_call_details: Body = {}

    def post_call(self, **_: Any) -> None:
        pass


def essence(completion: Body, *, ids: bool) -> Body:
    """What a client reads of a chat completion. `ids`: the ids of calls are the vendor's."""
    choice, usage = completion["choices"][0], completion["usage"]
    message = choice["message"]
    calls = [
        {"id": call["id"] if ids else "", "name": call["function"]["name"]}
        | {"arguments": orjson.loads(call["function"]["arguments"])}
        for call in message.get("tool_calls") or ()
    ]
    return {
        "content": message.get("content") or "",
        "thought": message.get("reasoning_content") or "",
        "calls": calls,
        "finish": choice["finish_reason"],
        "input": usage["prompt_tokens"],
        "output": usage["completion_tokens"],
        "total": usage["total_tokens"],
        "cached": (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
    }


def answer(backend: Any, body: Body, *, ids: bool = True) -> Body:
    plain = wire("openai_chat", backend).plain(chat_request(), orjson.dumps(body))
    return essence(orjson.loads(plain.body), ids=ids)


def theirs_of(config: Any, model: str, body: Body, *, ids: bool = True) -> Body:
    from litellm import ModelResponse

    completion = config.transform_response(
        model=model, raw_response=httpx.Response(200, json=body), model_response=ModelResponse(), logging_obj=Silent(),
        request_data={}, messages=[], optional_params={}, litellm_params={}, encoding=None,
    )  # fmt: skip
    return essence(completion.model_dump(), ids=ids)


def replies(seed: int) -> Body:
    return {"reply": reply(seed)}


def test_answers_of_anthropic() -> None:
    keep_litellm_offline()
    from litellm import AnthropicConfig

    def translated(case: Body) -> tuple[Any, Any]:
        body = case["reply"].as_messages()
        return answer("anthropic_messages", body), theirs_of(AnthropicConfig(), CLAUDE, body)

    assert unexplained(translated, replies, ()) == []


CUT = Known(
    "finish",
    "litellm does not report that the limit cut the answer, if the answer has calls. It is `length` in "
    "platform.openai.com/docs/api-reference/chat/object",
    lambda case, ours, theirs: ours == "length" and case["reply"].cut and theirs == "tool_calls",
)


def test_answers_of_gemini() -> None:
    keep_litellm_offline()
    from litellm import GoogleAIStudioGeminiConfig

    def translated(case: Body) -> tuple[Any, Any]:
        body = case["reply"].as_gemini()
        ours = answer("gemini_generate", body, ids=False)
        return ours, theirs_of(GoogleAIStudioGeminiConfig(), GEMINI, body, ids=False)

    assert unexplained(translated, replies, (CUT,)) == []


def test_answers_of_converse() -> None:
    keep_litellm_offline()
    from litellm import AmazonConverseConfig

    def translated(case: Body) -> tuple[Any, Any]:
        body = case["reply"].as_converse()
        return answer("bedrock_converse", body), theirs_of(AmazonConverseConfig(), NOVA, body)

    assert unexplained(translated, replies, ()) == []
