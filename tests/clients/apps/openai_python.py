"""OpenAI's own Python SDK: chat, streams, tools, structured answers, batches, embeddings, completions, errors."""

from __future__ import annotations

import json
import time

import openai
from cases import EMBEDDER, KEY, MODEL, PIXEL, SPENT_KEY, V1, case, main, raised, token
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=V1, api_key=KEY, max_retries=0)
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}}]


class City(BaseModel):
    name: str
    people: int
    old: bool


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


@case
def plain():
    said = token()
    answer = client.chat.completions.create(model=MODEL, messages=user(f"Say {said}"))
    assert said in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.completion_tokens > 0


@case
async def plain_async():
    said = token()
    async with AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0) as other:
        answer = await other.chat.completions.create(model=MODEL, messages=user(f"Say {said}"))
        assert said in answer.choices[0].message.content
        stream = await other.chat.completions.create(model=MODEL, messages=user(f"Stream {said}"), stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert said in text


@case
def twice():
    """Where there is a cache, the second and third are its answers, whichever way they are asked for."""
    asked = {"model": MODEL, "messages": user(f"Repeat {token()}")}
    first = client.chat.completions.create(**asked).choices[0].message.content
    assert first == client.chat.completions.create(**asked).choices[0].message.content
    with client.chat.completions.stream(**asked) as helper:
        assert first == helper.get_final_completion().choices[0].message.content


@case
def long_conversation():
    """More than a policy that trims lets through."""
    said, older = token(), []
    for number in range(60):
        older += [*user(f"{number} " + "many words " * 150), {"role": "assistant", "content": "more words " * 20}]
    answer = client.chat.completions.create(model=MODEL, messages=[*older, *user(f"Now {said}")])
    assert said in answer.choices[0].message.content
    answer = client.responses.create(model=MODEL, input=[*older, *user(f"Again {said}")])
    assert said in answer.output_text


@case
def conversation():
    first, last = token(), token()
    turns = [*user(f"I am {first}"), {"role": "assistant", "content": "Hello."}, *user(f"And now {last}")]
    system = {"role": "system", "content": "Be brief."}
    answer = client.chat.completions.create(model=MODEL, messages=[system, *turns], temperature=0)
    assert last in answer.choices[0].message.content


@case
def stop():
    """Responses has no such thing: where nothing else is spoken, the field is named."""
    said = token()
    try:
        answer = client.chat.completions.create(model=MODEL, messages=user(f"Say {said}"), stop=["END"])
    except openai.BadRequestError as error:
        assert error.param == "stop"  # noqa: PT017 (no pytest here)
    else:
        assert said in answer.choices[0].message.content


@case
def stream():
    said = token()
    chunks = list(client.chat.completions.create(model=MODEL, messages=user(f"Stream {said}"), stream=True))
    assert said in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"


@case
def stream_usage():
    said, asked = token(), {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model=MODEL, messages=user(f"Count {said}"), stream=True, stream_options=asked)
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens > 0
    assert chunks[-1].usage.completion_tokens > 0


@case
def stream_helper():
    said = token()
    with client.chat.completions.stream(model=MODEL, messages=user(f"Help {said}")) as helper:
        kinds = [event.type for event in helper]
    assert {"chunk", "content.delta", "content.done"} <= set(kinds)
    assert said in helper.get_final_completion().choices[0].message.content


@case
def tools():
    said = token()
    messages = user(f"Weather in {said} [[use weather]]")
    first = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0]
    assert first.finish_reason == "tool_calls"
    call = first.message.tool_calls[0]
    assert said in call.function.arguments
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": f"sunny, says {said}"}]
    last = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0]
    assert f"sunny, says {said}" in last.message.content


@case
def tools_streamed():
    said = token()
    with client.chat.completions.stream(
        model=MODEL, messages=user(f"Weather in {said} [[use weather]]"), tools=TOOLS
    ) as helper:
        for _ in helper:
            pass
    choice = helper.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.parsed_arguments == {"city": said}


@case
def tool_forced():
    said = token()
    forced = {"type": "function", "function": {"name": "weather"}}
    answer = client.chat.completions.create(model=MODEL, messages=user(said), tools=TOOLS, tool_choice=forced)
    assert said in answer.choices[0].message.tool_calls[0].function.arguments


@case
def parse():
    said = token()
    parsed = client.chat.completions.parse(model=MODEL, messages=user(f"City {said}"), response_format=City)
    assert parsed.choices[0].message.parsed == City(name=said, people=7, old=True)


@case
def image():
    said = token()
    url = f"data:image/png;base64,{PIXEL}"
    parts = [{"type": "text", "text": f"See {said}"}, {"type": "image_url", "image_url": {"url": url}}]
    answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}])
    assert said in answer.choices[0].message.content


@case
def raw_response():
    said = token()
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=user(f"Say {said}"))
    answer = raw.parse()
    assert said in answer.choices[0].message.content
    assert answer._request_id == raw.headers["x-request-id"]
    with client.responses.with_streaming_response.create(model=MODEL, input=f"Say {said}", stream=True) as streamed:
        assert "response.completed" in "".join(streamed.iter_text())


@case
def batch():
    said = token()
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": MODEL, "messages": user(f"Line {number} of {said}")},
        }
        for number in range(3)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file = client.files.create(file=("lines.jsonl", text.encode()), purpose="batch")
    job = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    until = time.monotonic() + 20
    while job.status not in ("completed", "failed", "expired") and time.monotonic() < until:
        time.sleep(0.2)
        job = client.batches.retrieve(job.id)
    assert (job.status, job.request_counts.completed) == ("completed", 3), job
    rows = [json.loads(line) for line in client.files.content(job.output_file_id).text.splitlines()]
    answers = {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in rows}
    assert all(f"Line {number} of {said}" in answers[f"line-{number}"] for number in range(3))


@case
def moderations():
    answer = client.moderations.create(model=EMBEDDER, input="nothing bad")
    assert answer.results[0].flagged is False


@case
def embeddings():
    answer = client.embeddings.create(model=EMBEDDER, input=["a", "bcd"])
    assert [row.embedding for row in answer.data] == [[1, 1, 2, 3], [3, 1, 2, 3]]
    floats = client.embeddings.create(model=EMBEDDER, input=[5, 6], encoding_format="float")
    assert floats.data[0].embedding == [2, 1, 2, 3]


@case
def completions():
    said = token()
    answer = client.completions.create(model=MODEL, prompt=f"Say {said}", max_tokens=50)
    assert said in answer.choices[0].text
    chunks = list(client.completions.create(model=MODEL, prompt=f"Stream {said}", stream=True))
    assert said in "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


@case
def models():
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


@case
def wrong_key():
    other = client.with_options(api_key="sk-nobody")
    for call in (
        lambda: other.chat.completions.create(model=MODEL, messages=user("hi")),
        lambda: other.chat.completions.create(model=MODEL, messages=user("hi"), stream=True),
        lambda: other.responses.create(model=MODEL, input="hi"),
        lambda: other.models.list(),
    ):
        error = raised(openai.AuthenticationError, call)
        assert error.code == "invalid_api_key"


@case
def unknown_model():
    for call in (
        lambda: client.chat.completions.create(model="nothing-such", messages=user("hi")),
        lambda: client.responses.create(model="nothing-such", input="hi"),
    ):
        assert raised(openai.NotFoundError, call).code == "model_not_found"


@case
def spent():
    other = client.with_options(api_key=SPENT_KEY)
    error = raised(openai.RateLimitError, other.chat.completions.create, model=MODEL, messages=user("hi"))
    assert error.code == "insufficient_quota"


@case
def refused_above():
    error = raised(openai.BadRequestError, client.responses.create, model=MODEL, input=f"{token()} [[fail 400]]")
    assert "Scripted refusal" in str(error)
    error = raised(
        openai.BadRequestError, client.chat.completions.create, model=MODEL, messages=user(f"{token()} [[fail 400]]")
    )
    assert "Scripted refusal" in str(error)


@case
def broken_stream():
    def read():
        for _ in client.chat.completions.create(
            model=MODEL, messages=user(f"{token()} one two three four [[break]]"), stream=True
        ):
            pass

    raised(openai.APIError, read)


@case
def no_such_path():
    raised(openai.NotFoundError, client.post, "/nowhere", cast_to=object, body={})


main()
