"""Ollama's own Python client: texts, streams, tools, schemas, pictures, thoughts, lists of models, errors."""

from __future__ import annotations

import json

import ollama
from cases import BASE, KEY, MODEL, PIXEL, SPENT_KEY, case, main, raised, token


def connect(key: str = KEY) -> ollama.Client:
    return ollama.Client(host=BASE, headers={"authorization": f"Bearer {key}"})


client, stranger, spender = connect(), connect("tg-wrong"), connect(SPENT_KEY)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def user(text: str, **more: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": text, **more}]


@case
def plain():
    said = token()
    answer = client.chat(model=MODEL, messages=user(f"Say {said}"))
    assert said in answer.message.content
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert answer.prompt_eval_count > 0
    assert answer.eval_count > 0


@case
async def plain_async():
    said = token()
    asking = ollama.AsyncClient(host=BASE, headers={"authorization": f"Bearer {KEY}"})
    answer = await asking.chat(model=MODEL, messages=user(f"Say {said}"))
    assert said in answer.message.content


@case
def default_tag():
    said = token()
    assert said in client.chat(model=f"{MODEL}:latest", messages=user(f"Say {said}")).message.content


@case
def stream():
    said = token()
    parts = list(client.chat(model=MODEL, messages=user(f"Stream {said}"), stream=True))
    assert said in "".join(part.message.content for part in parts)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 2
    assert parts[-1].eval_count > 0


@case
def twice():
    said = token()
    one, two = (client.chat(model=MODEL, messages=user(f"Say {said}")).message.content for _ in range(2))
    assert said in one
    assert said in two


@case
def stream_twice():
    said = token()
    for _ in range(2):
        parts = list(client.chat(model=MODEL, messages=user(f"Say {said}"), stream=True))
        assert said in "".join(part.message.content for part in parts)
        assert parts[-1].done_reason == "stop"


@case
def system():
    said = token()
    messages = [{"role": "system", "content": "Be brief"}, *user(f"Say {said}")]
    assert said in client.chat(model=MODEL, messages=messages).message.content


@case
def options():
    said = token()
    answer = client.chat(model=MODEL, messages=user(f"Say {said}"), options={"temperature": 0, "num_predict": 500})
    assert said in answer.message.content


@case
def conversation():
    said = token()
    messages = [*user("Hello"), {"role": "assistant", "content": "Hello!"}, *user(f"Say {said}")]
    assert said in client.chat(model=MODEL, messages=messages).message.content


@case
def image():
    said = token()
    assert said in client.chat(model=MODEL, messages=user(f"Say {said}", images=[PIXEL])).message.content


def called(*, streams: bool) -> None:
    said = token()
    messages = user(f"Weather in {said} [[use weather]]")
    answer = client.chat(model=MODEL, messages=messages, tools=[TOOL], stream=streams)
    parts = list(answer) if streams else [answer]
    (call,) = [call for part in parts for call in part.message.tool_calls or ()]
    assert call.function.name == "weather"
    assert said in json.dumps(call.function.arguments)
    result = {"role": "tool", "content": f"sunny, says {said}", "tool_name": "weather"}
    messages += [{"role": "assistant", "tool_calls": [call]}, result]
    assert f"sunny, says {said}" in client.chat(model=MODEL, messages=messages, tools=[TOOL]).message.content


@case
def tools():
    called(streams=False)


@case
def tools_streamed():
    called(streams=True)


def answered(*names: str, **more: object) -> None:
    """All calls come, and each result is heard, in its order."""
    said = token()
    offered = [{"type": "function", "function": {**TOOL["function"], "name": name}} for name in dict.fromkeys(names)]
    messages = user(f"For {said} [[use {' '.join(names)}]] [[think]]")
    first = client.chat(model=MODEL, messages=messages, tools=offered, **more).message
    assert [call.function.name for call in first.tool_calls] == list(names)
    assert bool(first.thinking) == bool(more)
    results = [
        {"role": "tool", "content": f"{number} {name} {said}", "tool_name": name} for number, name in enumerate(names)
    ]
    text = client.chat(model=MODEL, messages=[*messages, first, *results], tools=offered, **more).message.content
    assert " and ".join(f"{number} {name} {said}" for number, name in enumerate(names)) in text


@case
def two_tools():
    answered("weather", "time")


@case
def one_tool_twice():
    answered("weather", "weather")


@case
def thinks_and_calls():
    """The model's turn goes back as it came, with its thoughts."""
    answered("weather", think=True)


@case
def unicode():
    said = f'{token()} grüße 😀 日本語 \u2028 \\ "quoted" </x>'
    assert said in client.chat(model=MODEL, messages=user(said)).message.content
    parts = client.chat(model=MODEL, messages=user(said), stream=True)
    assert said in "".join(part.message.content for part in parts)


@case
def length():
    asked = {"model": MODEL, "messages": user(f"Long {token()} [[length]]")}
    assert client.chat(**asked).done_reason == "length"
    *_, last = client.chat(**asked, stream=True)
    assert last.done_reason == "length"


@case
def schema():
    form = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "people": {"type": "integer"}, "old": {"type": "boolean"}},
        "required": ["name", "people", "old"],
    }
    answer = client.chat(model=MODEL, messages=user(f"Describe the city {token()}"), format=form)
    assert set(json.loads(answer.message.content)) == {"name", "people", "old"}


@case
def thinking():
    said = token()
    answer = client.chat(model=MODEL, messages=user(f"Think of {said} [[think]]"), think=True)
    assert said in answer.message.content
    assert answer.message.thinking


@case
def thoughts_hidden():
    assert not client.chat(model=MODEL, messages=user(f"Think of {token()} [[think]]")).message.thinking


@case
def listed():
    assert MODEL in {model.model for model in client.list().models}


@case
def shown():
    found = client.show(MODEL)
    assert "completion" in found.capabilities


@case
def wrong_key():
    error = raised(ollama.ResponseError, stranger.chat, model=MODEL, messages=user("x"))
    assert error.status_code == 401
    assert "API key" in error.error


@case
def unknown_model():
    error = raised(ollama.ResponseError, client.chat, model="no-such-model", messages=user("x"))
    assert error.status_code == 404


@case
def spent():
    error = raised(ollama.ResponseError, spender.chat, model=MODEL, messages=user("x"))
    assert error.status_code == 429


@case
def refused_field():
    error = raised(ollama.ResponseError, client.chat, model=MODEL, messages=user("x"), logprobs=True)
    assert error.status_code == 400
    assert "logprobs" in error.error


@case
def broken_stream():
    def read() -> None:
        asked = f"{token()} many words {token()} [[break]]"
        list(client.chat(model=MODEL, messages=user(asked), stream=True))

    assert raised(ollama.ResponseError, read).error


@case
def refused_above():
    asked = user(f"{token()} [[fail 400]]")
    assert raised(ollama.ResponseError, client.chat, model=MODEL, messages=asked).status_code == 400


main()
