"""Anthropic's own Python SDK: messages, streams, tools, the tool runner, structured answers, beta, count, errors."""

from __future__ import annotations

import json
import time

import anthropic
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from cases import BASE, KEY, MODEL, PIXEL, SPENT_KEY, case, main, raised, token
from pydantic import BaseModel

client = Anthropic(base_url=BASE, api_key=KEY, max_retries=0)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": name, "description": name, "input_schema": SCHEMA} for name in ("weather", "time")]


class City(BaseModel):
    name: str
    people: int


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def text_of(message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@case
def plain():
    said = token()
    answer = client.messages.create(model=MODEL, max_tokens=500, messages=user(f"Say {said}"), system="Be brief.")
    assert said in text_of(answer)
    assert (answer.type, answer.role, answer.stop_reason) == ("message", "assistant", "end_turn")
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0


@case
async def plain_async():
    said = token()
    async with AsyncAnthropic(base_url=BASE, auth_token=KEY, max_retries=0) as other:
        answer = await other.messages.create(model=MODEL, max_tokens=500, messages=user(f"Say {said}"))
        assert said in text_of(answer)
        async with other.messages.stream(model=MODEL, max_tokens=500, messages=user(f"Stream {said}")) as helper:
            assert said in await helper.get_final_text()


@case
def stream():
    said = token()
    kinds = []
    for event in client.messages.create(model=MODEL, max_tokens=500, messages=user(f"Stream {said}"), stream=True):
        kinds.append(event.type)
        if event.type == "message_start":
            assert event.message.usage.input_tokens > 0
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 1


@case
def stream_helper():
    said = token()
    with client.messages.stream(model=MODEL, max_tokens=500, messages=user(f"Help {said}")) as helper:
        text = "".join(helper.text_stream)
        final = helper.get_final_message()
    assert said in text
    assert text == text_of(final)
    assert final.usage.output_tokens > 0


@case
def tools():
    said = token()
    messages = user(f"Both for {said} [[use weather time]]")
    first = client.messages.create(model=MODEL, max_tokens=500, messages=messages, tools=TOOLS)
    assert first.stop_reason == "tool_use"
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [(call.name, call.input) for call in calls] == [("weather", {"city": said}), ("time", {"city": said})]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": f"{call.name} of {said}"} for call in calls]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    last = client.messages.create(model=MODEL, max_tokens=500, messages=messages, tools=TOOLS)
    assert f"weather of {said} and time of {said}" in text_of(last)


@case
def tools_streamed():
    said = token()
    with client.messages.stream(
        model=MODEL, max_tokens=500, messages=user(f"Both for {said} [[use weather time]]"), tools=TOOLS
    ) as helper:
        final = helper.get_final_message()
    assert final.stop_reason == "tool_use"
    assert [block.input for block in final.content if block.type == "tool_use"] == [{"city": said}] * 2


@case
def tool_runner():
    said, seen = token(), []

    @beta_tool
    def weather(city: str) -> str:
        """The weather.

        Args:
            city: where
        """
        seen.append(city)
        return f"sunny in {city}"

    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=500, tools=[weather], messages=user(f"Weather in {said} [[use weather]]")
    )
    last = runner.until_done()
    assert seen == [said]
    assert f"sunny in {said}" in text_of(last)


@case
def parse():
    said = token()
    parsed = client.messages.parse(model=MODEL, max_tokens=500, messages=user(f"City {said}"), output_format=City)
    assert parsed.parsed_output == City(name=said, people=7)


@case
def beta():
    said = token()
    answer = client.beta.messages.create(
        model=MODEL, max_tokens=500, messages=user(f"Say {said}"), betas=["token-efficient-tools-2025-02-19"]
    )
    assert said in text_of(answer)


@case
def cache_control():
    said = token()
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    answer = client.messages.create(model=MODEL, max_tokens=500, messages=user(f"Say {said}"), system=system)
    assert said in text_of(answer)


@case
def thinking():
    said = token()
    messages = user(f"Think of {said} [[think]]")
    asked = {"type": "enabled", "budget_tokens": 1024}
    with client.messages.stream(model=MODEL, max_tokens=4000, messages=messages, thinking=asked) as helper:
        first = helper.get_final_message()
    assert said in text_of(first)
    thoughts = [block for block in first.content if block.type == "thinking"]
    assert said in thoughts[0].thinking
    again = token()
    messages += [{"role": "assistant", "content": first.content}, *user(f"And {again}")]
    last = client.messages.create(model=MODEL, max_tokens=4000, messages=messages, thinking=asked)
    assert again in text_of(last)


@case
def image():
    said = token()
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    parts = [{"type": "image", "source": source}, {"type": "text", "text": f"See {said}"}]
    answer = client.messages.create(model=MODEL, max_tokens=500, messages=[{"role": "user", "content": parts}])
    assert said in text_of(answer)


@case
def twice():
    """Where there is a cache, the second and third are its answers, whichever way they are asked for."""
    asked = {"model": MODEL, "max_tokens": 500, "messages": user(f"Repeat {token()}")}
    with client.messages.stream(**asked) as helper:
        first = helper.get_final_text()
    assert first == text_of(client.messages.create(**asked))
    with client.messages.stream(**asked) as helper:
        assert first == helper.get_final_text()


@case
def tools_twice():
    asked = {"model": MODEL, "max_tokens": 500, "messages": user(f"For {token()} [[use weather]]"), "tools": TOOLS}
    first = [block.input for block in client.messages.create(**asked).content if block.type == "tool_use"]
    with client.messages.stream(**asked) as helper:
        assert first == [block.input for block in helper.get_final_message().content if block.type == "tool_use"]


@case
def long_conversation():
    """More than a policy that trims lets through."""
    said, older = token(), []
    for number in range(60):
        older += [*user(f"{number} " + "many words " * 150), {"role": "assistant", "content": "more words " * 20}]
    messages = [*older, *user(f"Now {said}")]
    assert said in text_of(client.messages.create(model=MODEL, max_tokens=500, messages=messages, system="Be brief."))


@case
def count_tokens():
    counted = client.messages.count_tokens(model=MODEL, messages=user("one two three four five"), system="Be brief.")
    assert counted.input_tokens > 0


@case
def raw_response():
    said = token()
    raw = client.messages.with_raw_response.create(model=MODEL, max_tokens=500, messages=user(f"Say {said}"))
    answer = raw.parse()
    assert said in text_of(answer)
    assert answer._request_id == raw.headers["request-id"]


@case
def batch():
    said = token()
    requests = [
        {
            "custom_id": f"line-{number}",
            "params": {"model": MODEL, "max_tokens": 500, "messages": user(f"Line {number} of {said}")},
        }
        for number in range(3)
    ]
    job = client.messages.batches.create(requests=requests)
    until = time.monotonic() + 20
    while job.processing_status != "ended" and time.monotonic() < until:
        time.sleep(0.2)
        job = client.messages.batches.retrieve(job.id)
    assert job.request_counts.succeeded == 3, job
    answers = {row.custom_id: text_of(row.result.message) for row in client.messages.batches.results(job.id)}
    assert all(f"Line {number} of {said}" in answers[f"line-{number}"] for number in range(3))


@case
def models():
    assert MODEL in [model.id for model in client.models.list()]


@case
def wrong_key():
    other = client.with_options(api_key="sk-nobody")
    error = raised(anthropic.AuthenticationError, other.messages.create, model=MODEL, max_tokens=5, messages=user("hi"))
    assert error.body["error"]["type"] == "authentication_error"
    assert error.body["type"] == "error"


@case
def unknown_model():
    error = raised(
        anthropic.NotFoundError, client.messages.create, model="nothing-such", max_tokens=5, messages=user("hi")
    )
    assert error.body["error"]["type"] == "not_found_error"


@case
def spent():
    other = client.with_options(api_key=SPENT_KEY)
    error = raised(anthropic.RateLimitError, other.messages.create, model=MODEL, max_tokens=5, messages=user("hi"))
    assert error.body["error"]["type"] == "rate_limit_error", json.dumps(error.body)


@case
def refused_above():
    error = raised(
        anthropic.BadRequestError,
        client.messages.create, model=MODEL, max_tokens=5, messages=user(f"{token()} [[fail 400]]"),
    )  # fmt: skip
    assert "Scripted refusal" in error.body["error"]["message"]


@case
def broken_stream():
    def read():
        with client.messages.stream(
            model=MODEL, max_tokens=500, messages=user(f"{token()} one two three four [[break]]")
        ) as helper:
            helper.get_final_message()

    raised(anthropic.APIError, read)


main()
