"""The scripted upstream in AWS's words: Converse and ConverseStream, whose requests AWS's service model checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import botocore.loaders
import botocore.model
import botocore.validate
import orjson

from tests.clients.brain import Answer, Call, Question, Refused, Tool, Turn
from tests.fakes.event_stream import event

PATH = re.compile(r"/model/(?P<model>[^/]+)/converse(?P<stream>-stream)?")
EXCEPTIONS = {
    400: "ValidationException", 401: "UnrecognizedClientException", 404: "ResourceNotFoundException",
    429: "ThrottlingException",
}  # fmt: skip


@lru_cache(maxsize=1)
def _shape() -> Any:
    model = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(model).operation_model("Converse").input_shape


def error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    return {"message": message}


def parse(body: dict[str, Any]) -> Question:
    _check(body)
    turns = [Turn("system", "\n".join(block["text"] for block in body.get("system") or () if "text" in block))]
    for message in body["messages"]:
        turns.extend(_turns(message))
    config = body.get("toolConfig") or {}
    choice = config.get("toolChoice") or {}
    specs = [tool["toolSpec"] for tool in config.get("tools") or () if "toolSpec" in tool]
    output = body.get("outputConfig") or {}
    form = (output.get("textFormat") or {}).get("structure")
    more = body.get("additionalModelRequestFields") or {}
    return Question(
        turns=tuple(turns),
        tools={spec["name"]: Tool(spec["inputSchema"]["json"]) for spec in specs},
        forced="any" in choice,
        wanted=choice["tool"]["name"] if "tool" in choice else "",
        schema=orjson.loads(form["jsonSchema"]["schema"]) if form else None,
        thinks="thinking" in more or "effort" in output,
    )


def _check(body: dict[str, Any]) -> None:
    """AWS's service model, and the rules that its reference adds."""
    sent = {name: value for name, value in body.items() if name not in ("model", "stream")}
    report = botocore.validate.ParamValidator().validate({"modelId": body["model"], **_decoded(sent)}, _shape())
    if report.has_errors():
        raise Refused(400, report.generate_report())
    owed: set[str] = set()
    for number, message in enumerate(body["messages"]):
        blocks = message["content"]
        if message["role"] != ("user", "assistant")[number % 2] or not blocks:
            raise Refused(400, f"Messages must alternate and must not be empty: message {number}.")
        if {block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block} != owed:
            raise Refused(400, f"Message {number} must have the results of {owed}.")
        owed = {block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block}
        if ("toolResult" in blocks[0] or owed) and "toolConfig" not in body:
            raise Refused(400, "The toolConfig field must be defined when using toolUse and toolResult blocks.")


def _decoded(value: Any) -> Any:
    """With bytes where JSON has base64, as boto3 takes them."""
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: inner.encode() if name == "bytes" else _decoded(inner) for name, inner in value.items()}


def _turns(message: dict[str, Any]) -> Iterator[Turn]:
    for block in message["content"]:
        if result := block.get("toolResult"):
            yield Turn("tool", "\n".join(part["text"] for part in result["content"] if "text" in part))
    if text := "\n".join(block["text"] for block in message["content"] if "text" in block):
        yield Turn(message["role"], text)


def render(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if said.thought:
        blocks.append({"reasoningContent": {"reasoningText": {"text": said.thought, "signature": "sig-brain"}}})
    if said.text:
        blocks.append({"text": said.text})
    blocks += [{"toolUse": {**use, "input": call.arguments}} for use, call in _uses(said)]
    message = {"role": "assistant", "content": blocks}
    return {"output": {"message": message}, "stopReason": _stop(said), "metrics": {"latencyMs": 1}, **_usage(said)}


def events(body: dict[str, Any], said: Answer) -> Iterator[bytes]:
    yield event("messageStart", {"role": "assistant"})
    index = 0
    if said.thought:
        for word in said.thought_words:
            yield _delta(index, {"reasoningContent": {"text": word}})
        yield _delta(index, {"reasoningContent": {"signature": "sig-brain"}})
        yield event("contentBlockStop", {"contentBlockIndex": index})
        index += 1
    for number, word in enumerate(said.words):
        if said.broken and number == 2:
            return
        yield _delta(index, {"text": word})
    if said.words:
        yield event("contentBlockStop", {"contentBlockIndex": index})
        index += 1
    for use, call in _uses(said):
        yield event("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": use}})
        for start in range(0, len(call.json), 9):
            yield _delta(index, {"toolUse": {"input": call.json[start : start + 9]}})
        yield event("contentBlockStop", {"contentBlockIndex": index})
        index += 1
    yield event("messageStop", {"stopReason": _stop(said)})
    yield event("metadata", {**_usage(said), "metrics": {"latencyMs": 1}})


def _uses(said: Answer) -> list[tuple[dict[str, Any], Call]]:
    return [
        ({"toolUseId": f"tooluse_brain{said.number}x{number}", "name": call.name}, call)
        for number, call in enumerate(said.calls)
    ]


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


def _stop(said: Answer) -> str:
    return "max_tokens" if said.cut else "tool_use" if said.calls else "end_turn"


def _usage(said: Answer) -> dict[str, Any]:
    total = said.input_tokens + said.output_tokens
    return {"usage": {"inputTokens": said.input_tokens, "outputTokens": said.output_tokens, "totalTokens": total}}
