"""litellm as a client: its openai and anthropic providers, chat, streams, tools, responses, embeddings, errors."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches one at import

import litellm
from cases import BASE, EMBEDDER, KEY, MODEL, SPENT_KEY, V1, case, main, raised, token

litellm.telemetry = False
OPENAI = {"model": f"openai/{MODEL}", "api_base": V1, "api_key": KEY, "num_retries": 0, "max_retries": 0}
CLAUDE = {"model": f"anthropic/{MODEL}", "api_base": BASE, "api_key": KEY, "num_retries": 0, "max_retries": 0}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "weather", "parameters": SCHEMA}}]


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


async def completion(where: dict) -> None:
    said = token()
    answer = litellm.completion(messages=user(f"Say {said}"), **where)
    assert said in answer.choices[0].message.content
    assert answer.usage.prompt_tokens > 0
    answer = await litellm.acompletion(messages=user(f"Await {said}"), **where)
    assert said in answer.choices[0].message.content


def stream(where: dict) -> None:
    said = token()
    chunks = list(litellm.completion(messages=user(f"Stream {said}"), stream=True, **where))
    assert said in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def tools(where: dict) -> None:
    said = token()
    messages = user(f"Weather in {said} [[use weather]]")
    first = litellm.completion(messages=messages, tools=TOOLS, **where).choices[0]
    assert first.finish_reason == "tool_calls"
    call = first.message.tool_calls[0]
    assert said in call.function.arguments
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": f"sunny in {said}"}]
    last = litellm.completion(messages=messages, tools=TOOLS, **where).choices[0]
    assert f"sunny in {said}" in last.message.content


@case
async def openai_completion():
    await completion(OPENAI)


@case
def openai_stream():
    stream(OPENAI)


@case
def openai_tools():
    tools(OPENAI)


@case
def responses():
    said = token()
    answer = litellm.responses(input=f"Say {said}", **OPENAI)
    assert said in answer.output[-1].content[0].text


@case
async def claude_completion():
    await completion(CLAUDE)


@case
def claude_stream():
    stream(CLAUDE)


@case
def claude_tools():
    tools(CLAUDE)


@case
def embeddings():
    answer = litellm.embedding(model=f"openai/{EMBEDDER}", input=["one", "two"], api_base=V1, api_key=KEY)
    assert [len(row["embedding"]) for row in answer.data] == [4, 4]


@case
def errors():
    raised(litellm.AuthenticationError, litellm.completion, messages=user("hi"), **{**OPENAI, "api_key": "sk-nobody"})
    raised(litellm.RateLimitError, litellm.completion, messages=user("hi"), **{**OPENAI, "api_key": SPENT_KEY})
    raised(litellm.NotFoundError, litellm.completion, messages=user("hi"), **{**OPENAI, "model": "openai/nothing-such"})
    raised(
        litellm.NotFoundError, litellm.completion, messages=user("hi"), **{**CLAUDE, "model": "anthropic/nothing-such"}
    )


main()
