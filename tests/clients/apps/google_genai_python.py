"""Google's own Python SDK: texts, streams, chats, functions, schemas, pictures, thoughts, errors."""

from __future__ import annotations

import asyncio
import base64

from cases import BASE, EMBEDDER, KEY, LACKS, MODEL, PIXEL, SPENT_KEY, case, main, raised, raised_later, token
from google import genai
from google.genai import errors, types
from pydantic import BaseModel


def connect(key: str = KEY, **more: object) -> genai.Client:
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=BASE, **more))


client, stranger, spender, older = connect(), connect("tg-wrong"), connect(SPENT_KEY), connect(api_version="v1")
models = client.models
WEATHER = types.FunctionDeclaration(
    name="weather",
    description="The weather of a city",
    parameters=types.Schema(
        type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}, required=["city"]
    ),
)
TOOLS = [types.Tool(function_declarations=[WEATHER])]


class City(BaseModel):
    name: str
    people: int
    old: bool


def config(**fields: object) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(**fields)


def manual(**fields: object) -> types.GenerateContentConfig:
    """Functions are called by hand."""
    return config(automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), **fields)


@case
def plain():
    said = token()
    answer = models.generate_content(model=MODEL, contents=f"Say {said}")
    assert said in answer.text
    assert answer.candidates[0].finish_reason == types.FinishReason.STOP


@case
def usage():
    answer = models.generate_content(model=MODEL, contents=f"Count {token()}")
    counted = answer.usage_metadata
    assert counted.prompt_token_count > 0
    assert counted.candidates_token_count > 0
    assert counted.total_token_count >= counted.prompt_token_count + counted.candidates_token_count


@case
def named():
    answer = models.generate_content(model=MODEL, contents=f"Name {token()}")
    assert answer.response_id
    assert answer.model_version


@case
def other_version():
    said = token()
    answer = older.models.generate_content(model=MODEL, contents=f"Say {said}")
    assert said in answer.text


@case
def by_full_name():
    said = token()
    assert said in models.generate_content(model=f"models/{MODEL}", contents=f"Say {said}").text


@case
async def plain_async():
    said = token()
    answer = await client.aio.models.generate_content(model=MODEL, contents=f"Say {said}")
    assert said in answer.text


@case
def stream():
    said = token()
    chunks = list(models.generate_content_stream(model=MODEL, contents=f"Stream {said}"))
    assert said in "".join(chunk.text or "" for chunk in chunks)
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
    assert len(chunks) > 1


@case
def stream_usage():
    chunks = list(models.generate_content_stream(model=MODEL, contents=f"Count {token()}"))
    assert chunks[-1].usage_metadata.prompt_token_count > 0
    assert chunks[-1].usage_metadata.candidates_token_count > 0


@case
async def stream_async():
    said = token()
    stream = await client.aio.models.generate_content_stream(model=MODEL, contents=f"Stream {said}")
    assert said in "".join([chunk.text or "" async for chunk in stream])


@case
async def several_at_a_time():
    said = [token() for _ in range(8)]
    asked = [client.aio.models.generate_content(model=MODEL, contents=f"Say {each}") for each in said]
    answers = await asyncio.gather(*asked)
    assert all(each in answer.text for each, answer in zip(said, answers, strict=True))


@case
def twice():
    """Where there is a cache, the second and third are its answers, whichever way they are asked for."""
    asked = {"model": MODEL, "contents": f"Repeat {token()}"}
    first = models.generate_content(**asked).text
    assert first == models.generate_content(**asked).text
    assert first == "".join(chunk.text or "" for chunk in models.generate_content_stream(**asked))


@case
def tools_twice():
    asked = {"model": MODEL, "contents": f"Weather in {token()} [[use weather]]", "config": manual(tools=TOOLS)}
    first = models.generate_content(**asked).function_calls[0]
    assert first.args == models.generate_content(**asked).function_calls[0].args
    streamed = [call for chunk in models.generate_content_stream(**asked) for call in chunk.function_calls or ()]
    assert [call.args for call in streamed] == [first.args]


@case
def system():
    said = token()
    answer = models.generate_content(
        model=MODEL, contents=f"Say {said}", config=config(system_instruction="Be brief.", temperature=0, top_p=0.9)
    )
    assert said in answer.text


@case
def limits():
    said = token()
    answer = models.generate_content(model=MODEL, contents=f"Say {said}", config=config(max_output_tokens=100, seed=7))
    assert said in answer.text


@case
def contents():
    first, last = token(), token()
    turns = [
        types.Content(role="user", parts=[types.Part(text=f"I am {first}")]),
        types.Content(role="model", parts=[types.Part(text="Hello.")]),
        types.Content(role="user", parts=[types.Part(text=f"And now {last}")]),
    ]
    assert last in models.generate_content(model=MODEL, contents=turns).text


@case
def parts():
    said = token()
    assert said in models.generate_content(model=MODEL, contents=["Look at this.", f"Say {said}"]).text


@case
def long_conversation():
    """More than a policy that trims lets through."""
    said, older = token(), []
    for number in range(60):
        older.append(types.Content(role="user", parts=[types.Part(text=f"{number} " + "many words " * 150)]))
        older.append(types.Content(role="model", parts=[types.Part(text="more words " * 20)]))
    last = types.Content(role="user", parts=[types.Part(text=f"Now {said}")])
    assert said in models.generate_content(model=MODEL, contents=[*older, last]).text


@case
def chat():
    first, last = token(), token()
    talk = client.chats.create(model=MODEL)
    assert first in talk.send_message(f"Say {first}").text
    assert last in talk.send_message(f"Say {last}").text
    assert len(talk.get_history()) == 4


@case
def chat_streamed():
    said = token()
    talk = client.chats.create(model=MODEL)
    assert said in "".join(chunk.text or "" for chunk in talk.send_message_stream(f"Say {said}"))
    again = token()
    assert again in talk.send_message(f"Say {again}").text


@case
def image():
    said = token()
    picture = types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png")
    assert said in models.generate_content(model=MODEL, contents=[picture, f"Say {said}"]).text


@case
def tools():
    said = token()
    question = types.Content(role="user", parts=[types.Part(text=f"Weather in {said} [[use weather]]")])
    first = models.generate_content(model=MODEL, contents=[question], config=manual(tools=TOOLS))
    (call,) = first.function_calls
    assert said in str(call.args)
    result = types.Part.from_function_response(name=call.name, response={"result": f"sunny, says {said}"})
    turns = [question, first.candidates[0].content, types.Content(role="user", parts=[result])]
    assert (
        f"sunny, says {said}" in models.generate_content(model=MODEL, contents=turns, config=manual(tools=TOOLS)).text
    )


@case
def tools_streamed():
    said = token()
    asked = f"Weather in {said} [[use weather]]"
    chunks = list(models.generate_content_stream(model=MODEL, contents=asked, config=manual(tools=TOOLS)))
    (call,) = [call for chunk in chunks for call in chunk.function_calls or ()]
    assert said in str(call.args)


@case
def tool_with_json_schema():
    said = token()
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="weather", parameters_json_schema=schema)])
    asked = f"Weather in {said} [[use weather]]"
    (call,) = models.generate_content(model=MODEL, contents=asked, config=manual(tools=[tool])).function_calls
    assert said in str(call.args)


@case
def tool_forced():
    calling = types.FunctionCallingConfig(mode="ANY", allowed_function_names=["weather"])
    answer = models.generate_content(
        model=MODEL,
        contents=f"Weather in {token()}",
        config=manual(tools=TOOLS, tool_config=types.ToolConfig(function_calling_config=calling)),
    )
    assert [call.name for call in answer.function_calls] == ["weather"]


@case
def tool_forbidden():
    said = token()
    calling = types.FunctionCallingConfig(mode="NONE")
    answer = models.generate_content(
        model=MODEL,
        contents=f"Say {said}",
        config=manual(tools=TOOLS, tool_config=types.ToolConfig(function_calling_config=calling)),
    )
    assert not answer.function_calls
    assert said in answer.text


@case
def tools_by_themselves():
    """The SDK calls the function and sends its result."""
    said = token()

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny, says {city}"

    answer = models.generate_content(
        model=MODEL, contents=f"Weather in {said} [[use weather]]", config=config(tools=[weather])
    )
    assert f"sunny, says {said}" in answer.text


@case
def schema():
    answer = models.generate_content(
        model=MODEL,
        contents=f"A city {token()}",
        config=config(response_mime_type="application/json", response_schema=City),
    )
    assert isinstance(answer.parsed, City)


@case
def json_schema():
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = models.generate_content(
        model=MODEL,
        contents=f"A name {token()}",
        config=config(response_mime_type="application/json", response_json_schema=form),
    )
    assert isinstance(answer.parsed["name"], str)


@case
def thinking():
    said = token()
    answer = models.generate_content(
        model=MODEL,
        contents=f"Think of {said} [[think]]",
        config=config(thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=1024)),
    )
    assert said in answer.text
    assert [part for part in answer.candidates[0].content.parts if part.thought]


@case
def thoughts_hidden():
    answer = models.generate_content(model=MODEL, contents=f"Think of {token()} [[think]]")
    assert not [part for part in answer.candidates[0].content.parts if part.thought]


@case
def count_tokens():
    one = models.count_tokens(model=MODEL, contents="one two three").total_tokens
    assert 0 < one < models.count_tokens(model=MODEL, contents="one two three four five six").total_tokens


def asked_for(*names: str) -> tuple[list[types.FunctionCall], types.Content, types.Content, list[types.Tool], str]:
    """The calls of an answer, the question and the model's turn, the tools, and the token."""
    said = token()
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    offered = [
        types.FunctionDeclaration(name=name, description=f"The {name}", parameters_json_schema=schema)
        for name in dict.fromkeys(names)
    ]
    tools = [types.Tool(function_declarations=offered)]
    question = types.Content(role="user", parts=[types.Part(text=f"For {said} [[use {' '.join(names)}]]")])
    first = models.generate_content(model=MODEL, contents=[question], config=manual(tools=tools))
    return first.function_calls, question, first.candidates[0].content, tools, said


def answered(*names: str) -> None:
    """All calls come, and each result is heard, in its order."""
    calls, question, turn, tools, said = asked_for(*names)
    assert [call.name for call in calls] == list(names)
    results = [
        types.Part.from_function_response(name=call.name, response={"result": f"{number} {call.name} {said}"})
        for number, call in enumerate(calls)
    ]
    turns = [question, turn, types.Content(role="user", parts=results)]
    text = models.generate_content(model=MODEL, contents=turns, config=manual(tools=tools)).text
    assert " and ".join(f"{number} {name} {said}" for number, name in enumerate(names)) in text


@case
def two_tools():
    answered("weather", "time")


@case
def one_tool_twice():
    answered("weather", "weather")


@case
def unicode():
    said = f'{token()} grüße 😀 日本語 \u2028 \\ "quoted" </x>'
    assert said in models.generate_content(model=MODEL, contents=said).text
    chunks = models.generate_content_stream(model=MODEL, contents=said)
    assert said in "".join(chunk.text or "" for chunk in chunks)


@case
def length():
    asked = {"model": MODEL, "contents": f"Long {token()} [[length]]"}
    assert models.generate_content(**asked).candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    *_, last = models.generate_content_stream(**asked)
    assert last.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS


@case
def thinks_and_calls():
    """The model's turn goes back as it came, with its thoughts and signatures."""
    said = token()
    thinks = types.ThinkingConfig(include_thoughts=True, thinking_budget=1024)
    question = types.Content(role="user", parts=[types.Part(text=f"Weather in {said} [[use weather]] [[think]]")])
    asked = {"model": MODEL, "config": manual(tools=TOOLS, thinking_config=thinks)}
    first = models.generate_content(contents=[question], **asked)
    (call,) = first.function_calls
    result = types.Part.from_function_response(name=call.name, response={"result": f"sunny, says {said}"})
    turns = [question, first.candidates[0].content, types.Content(role="user", parts=[result])]
    assert f"sunny, says {said}" in models.generate_content(contents=turns, **asked).text


@case
def pdf():
    said = token()
    paper = types.Part.from_bytes(data=b"%PDF-1.4 a paper", mime_type="application/pdf")
    asked = {"model": MODEL, "contents": [paper, f"Say {said}"]}
    if "pdf" in LACKS:
        assert raised(errors.ClientError, models.generate_content, **asked).code == 400
    else:
        assert said in models.generate_content(**asked).text


@case
def embeds():
    one = models.embed_content(model=EMBEDDER, contents="one")
    assert len(one.embeddings) == 1
    assert all(isinstance(value, float) for value in one.embeddings[0].values)
    several = models.embed_content(model=EMBEDDER, contents=["one", "two"])
    assert len(several.embeddings) == 2
    assert several.embeddings[0].values == one.embeddings[0].values


@case
def embeds_with_a_task():
    asked = types.EmbedContentConfig(task_type="RETRIEVAL_QUERY", output_dimensionality=4)
    assert models.embed_content(model=EMBEDDER, contents="one", config=asked).embeddings[0].values


@case
def wrong_key():
    error = raised(errors.ClientError, stranger.models.generate_content, model=MODEL, contents="x")
    assert (error.code, error.status) == (401, "UNAUTHENTICATED")


@case
def unknown_model():
    error = raised(errors.ClientError, models.generate_content, model="nobody", contents="x")
    assert (error.code, error.status) == (404, "NOT_FOUND")
    assert "nobody" in error.message


@case
def spent():
    error = raised(errors.ClientError, spender.models.generate_content, model=MODEL, contents="x")
    assert (error.code, error.status) == (429, "RESOURCE_EXHAUSTED")


@case
def refused_above():
    error = raised(errors.ClientError, models.generate_content, model=MODEL, contents=f"{token()} [[fail 400]]")
    assert (error.code, error.status) == (400, "INVALID_ARGUMENT")


@case
def refused_field():
    error = raised(
        errors.ClientError,
        models.generate_content,
        model=MODEL,
        contents="x",
        config=config(tools=[types.Tool(google_search=types.GoogleSearch())]),
    )
    assert error.code == 400
    assert "tools[0]" in error.message


@case
async def broken_stream():
    async def read() -> None:
        asked = f"{token()} many words {token()} [[break]]"
        async for _ in await client.aio.models.generate_content_stream(model=MODEL, contents=asked):
            pass

    await raised_later(Exception, read())


if __name__ == "__main__":
    main()
