"""OpenAI's Agents SDK, which speaks Responses, and chat when told to."""

from __future__ import annotations

import openai
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from cases import KEY, MODEL, V1, case, main, raised_later, token
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0)
MODELS = {
    "responses": OpenAIResponsesModel(model=MODEL, openai_client=client),
    "chat": OpenAIChatCompletionsModel(model=MODEL, openai_client=client),
}


class City(BaseModel):
    name: str
    people: int


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def run(model) -> None:
    said = token()
    result = await Runner.run(Agent(name="brief", instructions="Be brief.", model=model), f"Say {said}")
    assert said in result.final_output


async def tools(model) -> None:
    said = token()
    agent = Agent(name="weather", model=model, tools=[weather])
    result = await Runner.run(agent, f"Weather in {said} [[use weather]]")
    assert f"sunny in {said}" in result.final_output


async def streamed(model) -> None:
    said = token()
    agent = Agent(name="weather", model=model, tools=[weather])
    result = Runner.run_streamed(agent, f"Weather in {said} [[use weather]]")
    kinds = [event.type async for event in result.stream_events()]
    assert "raw_response_event" in kinds
    assert f"sunny in {said}" in result.final_output


async def structured(model) -> None:
    said = token()
    result = await Runner.run(Agent(name="city", model=model, output_type=City), f"City {said}")
    assert result.final_output == City(name=said, people=7)


async def handoff(model) -> None:
    said = token()
    helper = Agent(name="helper", model=model)
    first = Agent(name="first", model=model, handoffs=[helper])
    result = await Runner.run(first, f"For {said} [[use transfer_to_helper]]")
    assert result.last_agent is helper
    assert said in result.final_output


@case
async def responses_run():
    await run(MODELS["responses"])


@case
async def responses_tools():
    await tools(MODELS["responses"])


@case
async def responses_streamed():
    await streamed(MODELS["responses"])


@case
async def responses_structured():
    await structured(MODELS["responses"])


@case
async def responses_handoff():
    await handoff(MODELS["responses"])


@case
async def chat_run():
    await run(MODELS["chat"])


@case
async def chat_tools():
    await tools(MODELS["chat"])


@case
async def chat_streamed():
    await streamed(MODELS["chat"])


@case
async def chat_structured():
    await structured(MODELS["chat"])


@case
async def wrong_key():
    other = AsyncOpenAI(base_url=V1, api_key="sk-nobody", max_retries=0)
    await raised_later(openai.AuthenticationError, run(OpenAIResponsesModel(model=MODEL, openai_client=other)))


main()
