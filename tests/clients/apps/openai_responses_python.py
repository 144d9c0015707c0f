"""OpenAI's own Python SDK over Responses: plain, streams, parallel tools, structured answers, what is stored."""

from __future__ import annotations

import openai
from cases import KEY, MODEL, V1, case, main, raised, token
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=V1, api_key=KEY, max_retries=0)
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "name": name, "parameters": WEATHER, "strict": True} for name in ("weather", "time")]


class City(BaseModel):
    name: str
    people: int
    old: bool


@case
def twice():
    asked = {"model": MODEL, "input": f"Repeat {token()}"}
    with client.responses.stream(**asked) as helper:
        first = helper.get_final_response().output_text
    assert first == client.responses.create(**asked).output_text
    with client.responses.stream(**asked) as helper:
        kinds = [event.type for event in helper]
    assert kinds[-1] == "response.completed"
    assert first == helper.get_final_response().output_text


@case
def plain():
    said = token()
    answer = client.responses.create(model=MODEL, input=f"Say {said}", instructions="Be brief.")
    assert answer.status == "completed"
    assert said in answer.output_text
    assert answer.usage.input_tokens > 0


@case
def stream():
    said = token()
    with client.responses.stream(model=MODEL, input=f"Stream {said} [[think]]") as helper:
        kinds = [event.type for event in helper]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert said in helper.get_final_response().output_text


@case
def tools():
    said = token()
    given = [{"role": "user", "content": f"Both for {said} [[use weather time]]"}]
    first = client.responses.create(model=MODEL, input=given, tools=TOOLS)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["weather", "time"]
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"{call.name} of {said}"} for call in calls
    ]
    last = client.responses.create(model=MODEL, input=[*given, *first.output, *results], tools=TOOLS)
    assert f"weather of {said} and time of {said}" in last.output_text


@case
def parse():
    said = token()
    parsed = client.responses.parse(model=MODEL, input=f"City {said}", text_format=City)
    assert parsed.output_parsed == City(name=said, people=7, old=True)


@case
async def later():
    said = token()
    async with AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0) as other:
        events = [event async for event in await other.responses.create(model=MODEL, input=said, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert said in events[-1].response.output_text


@case
def memory():
    """Of a team that may store: only what is new is sent."""
    said = token()
    first = client.responses.create(model=MODEL, input=f"Weather in {said} [[use weather]]", tools=TOOLS)
    call = next(item for item in first.output if item.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": f"sunny in {said}"}
    last = client.responses.create(model=MODEL, previous_response_id=first.id, input=[result], tools=TOOLS)
    assert f"sunny in {said}" in last.output_text
    assert client.responses.retrieve(last.id).output_text == last.output_text
    client.responses.delete(last.id)
    raised(openai.NotFoundError, client.responses.retrieve, last.id)


main()
