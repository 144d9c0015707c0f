"""AWS's own Python SDK: Converse and ConverseStream, and its exceptions.

It signs with the gateway's key as the access key id: it sends bearer tokens over HTTPS alone.
"""

from __future__ import annotations

import base64
import json

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from cases import BASE, KEY, LACKS, MODEL, PIXEL, SPENT_KEY, case, main, raised, token

ONCE = Config(retries={"total_max_attempts": 1})


def connect(key: str = KEY):
    session = boto3.Session(aws_access_key_id=key, aws_secret_access_key="anything", region_name="eu-central-1")
    return session.client("bedrock-runtime", endpoint_url=BASE, config=ONCE)


client = connect()
TOOLS = {
    "tools": [
        {
            "toolSpec": {
                "name": "weather",
                "description": "The weather of a city",
                "inputSchema": {
                    "json": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
                },
            }
        }
    ]
}


def user(*blocks: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": [{"text": each} if isinstance(each, str) else each for each in blocks]}]


def ask(*blocks: object, **more: object):
    return client.converse(modelId=MODEL, messages=user(*blocks), **more)


def stream(*blocks: object, **more: object):
    return list(client.converse_stream(modelId=MODEL, messages=user(*blocks), **more)["stream"])


def words(answer) -> str:
    return "".join(block.get("text", "") for block in answer["output"]["message"]["content"])


def streamed(events) -> str:
    return "".join(each["contentBlockDelta"]["delta"].get("text", "") for each in events if "contentBlockDelta" in each)


@case
def plain():
    said = token()
    answer = ask(f"Say {said}")
    assert said in words(answer)
    assert answer["stopReason"] == "end_turn"
    assert answer["usage"]["inputTokens"] > 0
    assert answer["usage"]["totalTokens"] >= answer["usage"]["inputTokens"] + answer["usage"]["outputTokens"]


def invoked(*texts: str, **more: object) -> str:
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 200, "messages": messages, **more})


@case
def invokes():
    said = token()
    answer = json.loads(client.invoke_model(modelId=MODEL, body=invoked(f"Say {said}"))["body"].read())
    assert said in answer["content"][0]["text"]
    assert answer["type"] == "message"
    assert answer["usage"]["output_tokens"] > 0


@case
def invokes_a_stream():
    said = token()
    answer = client.invoke_model_with_response_stream(modelId=MODEL, body=invoked(f"Stream {said}"))
    events = [json.loads(each["chunk"]["bytes"]) for each in answer["body"]]
    assert said in "".join(each["delta"].get("text", "") for each in events if each["type"] == "content_block_delta")
    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "message_stop"


@case
def invokes_with_a_wrong_body():
    error = raised(ClientError, client.invoke_model, modelId=MODEL, body=json.dumps({"inputText": "hello"}))
    assert error.response["Error"]["Code"] == "ValidationException"
    assert "anthropic_version" in str(error)


@case
def streams():
    said = token()
    events = stream(f"Stream {said}")
    assert said in streamed(events)
    assert next(iter(events[0])) == "messageStart"
    assert [next(iter(each)) for each in events[-2:]] == ["messageStop", "metadata"]
    assert events[-1]["metadata"]["usage"]["outputTokens"] > 0


@case
def twice():
    said = token()
    assert all(said in words(ask(f"Say {said}")) for _ in range(2))
    assert all(said in streamed(stream(f"Say {said}")) for _ in range(2))


@case
def system():
    said = token()
    assert said in words(ask(f"Say {said}", system=[{"text": "Be brief"}]))


@case
def limits():
    said = token()
    inference = {"maxTokens": 500, "temperature": 0.0, "topP": 0.9}
    assert said in words(ask(f"Say {said}", inferenceConfig=inference))


@case
def conversation():
    said = token()
    before = [*user("Hello"), {"role": "assistant", "content": [{"text": "Hello!"}]}]
    assert said in words(client.converse(modelId=MODEL, messages=[*before, *user(f"Say {said}")]))


@case
def image():
    said = token()
    picture = {"image": {"format": "png", "source": {"bytes": base64.b64decode(PIXEL)}}}
    assert said in words(ask(picture, f"Say {said}"))


@case
def document():
    said = token()
    paper = {"document": {"format": "txt", "name": "notes", "source": {"bytes": b"some notes"}}}
    assert said in words(ask(paper, f"Say {said}"))


@case
def tools():
    said = token()
    question = user(f"Weather in {said} [[use weather]]")
    first = client.converse(modelId=MODEL, messages=question, toolConfig=TOOLS)
    assert first["stopReason"] == "tool_use"
    message = first["output"]["message"]
    (call,) = [block["toolUse"] for block in message["content"] if "toolUse" in block]
    assert said in str(call["input"])
    result = {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": f"sunny, says {said}"}]}}
    last = client.converse(modelId=MODEL, messages=[*question, message, *user(result)], toolConfig=TOOLS)
    assert f"sunny, says {said}" in words(last)


@case
def tools_streamed():
    said = token()
    events = stream(f"Weather in {said} [[use weather]]", toolConfig=TOOLS)
    (begun,) = [each["contentBlockStart"]["start"]["toolUse"] for each in events if "contentBlockStart" in each]
    assert begun["name"] == "weather"
    deltas = [each["contentBlockDelta"]["delta"] for each in events if "contentBlockDelta" in each]
    assert said in str(json.loads("".join(delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta)))


@case
def tool_forced():
    answer = ask(f"Weather in {token()}", toolConfig={**TOOLS, "toolChoice": {"tool": {"name": "weather"}}})
    assert [block["toolUse"]["name"] for block in answer["output"]["message"]["content"] if "toolUse" in block]


def answered(*names: str, **more: object) -> None:
    """All calls come, and each result is heard, in its order. The model's turn goes back as it came."""
    said = token()
    (tool,) = TOOLS["tools"]
    offered = {"tools": [{"toolSpec": {**tool["toolSpec"], "name": name}} for name in dict.fromkeys(names)]}
    asked = {"modelId": MODEL, "toolConfig": offered, "inferenceConfig": {"maxTokens": 4000}, **more}
    question = user(f"For {said} [[use {' '.join(names)}]] [[think]]")
    message = client.converse(messages=question, **asked)["output"]["message"]
    calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
    assert [call["name"] for call in calls] == list(names)
    assert len({call["toolUseId"] for call in calls}) == len(names)
    results = [
        {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": f"{number} {call['name']} {said}"}]}}
        for number, call in enumerate(calls)
    ]
    text = words(client.converse(messages=[*question, message, *user(*results)], **asked))
    assert " and ".join(f"{number} {name} {said}" for number, name in enumerate(names)) in text


@case
def two_tools():
    answered("weather", "time")


@case
def one_tool_twice():
    answered("weather", "weather")


@case
def thinks_and_calls():
    answered("weather", additionalModelRequestFields={"thinking": {"type": "enabled", "budget_tokens": 1024}})


@case
def unicode():
    said = f'{token()} grüße 😀 日本語 \u2028 \\ "quoted" </x>'
    assert said in words(ask(said))
    assert said in streamed(stream(said))


@case
def length():
    assert ask(f"Long {token()} [[length]]")["stopReason"] == "max_tokens"
    (stop,) = [each["messageStop"] for each in stream(f"Long {token()} [[length]]") if "messageStop" in each]
    assert stop["stopReason"] == "max_tokens"


@case
def pdf():
    said = token()
    paper = {"document": {"format": "pdf", "name": "paper", "source": {"bytes": b"%PDF-1.4 a paper"}}}
    if "pdf" in LACKS:
        assert raised(ClientError, ask, paper, f"Say {said}").response["Error"]["Code"] == "ValidationException"
    else:
        assert said in words(ask(paper, f"Say {said}"))


@case
def thinking():
    said = token()
    more = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    answer = ask(f"Think of {said} [[think]]", additionalModelRequestFields=more, inferenceConfig={"maxTokens": 4000})
    thoughts = [block for block in answer["output"]["message"]["content"] if "reasoningContent" in block]
    assert said in words(answer)
    assert thoughts[0]["reasoningContent"]["reasoningText"]["text"]


@case
def wrong_key():
    error = raised(ClientError, connect("tg-wrong").converse, modelId=MODEL, messages=user("x"))
    assert error.response["Error"]["Code"] == "UnrecognizedClientException"
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 401


@case
def unknown_model():
    error = raised(ClientError, client.converse, modelId="no-such-model", messages=user("x"))
    assert error.response["Error"]["Code"] == "ResourceNotFoundException"
    assert "no-such-model" in error.response["Error"]["Message"]


@case
def spent():
    error = raised(ClientError, connect(SPENT_KEY).converse, modelId=MODEL, messages=user("x"))
    assert error.response["Error"]["Code"] == "ThrottlingException"


@case
def refused_field():
    error = raised(ClientError, ask, "x", guardrailConfig={"guardrailIdentifier": "abcdef", "guardrailVersion": "1"})
    assert error.response["Error"]["Code"] == "ValidationException"
    assert "guardrailConfig" in error.response["Error"]["Message"]


@case
def refused_above():
    error = raised(ClientError, ask, f"{token()} [[fail 400]]")
    assert error.response["Error"]["Code"] == "ValidationException"


@case
def broken_stream():
    error = raised(EventStreamError, stream, f"{token()} many words {token()} [[break]]")
    assert "modelStreamErrorException" in str(error)


main()
