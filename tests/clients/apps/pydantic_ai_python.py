"""pydantic-ai agents over OpenAI's chat and Responses and Anthropic's messages."""

from __future__ import annotations

from cases import BASE, KEY, MODEL, V1, case, main, raised_later, token
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

openai = OpenAIProvider(base_url=V1, api_key=KEY)
MODELS = {
    "chat": OpenAIChatModel(MODEL, provider=openai),
    "responses": OpenAIResponsesModel(MODEL, provider=openai),
    "claude": AnthropicModel(MODEL, provider=AnthropicProvider(base_url=BASE, api_key=KEY)),
}


class City(BaseModel):
    name: str
    people: int


async def run(model) -> None:
    said = token()
    assert said in (await Agent(model, instructions="Be brief.").run(f"Say {said}")).output


async def stream(model) -> None:
    said = token()
    async with Agent(model).run_stream(f"Stream {said}") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert said in "".join(pieces)


async def tools(model) -> None:
    said, seen = token(), []
    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        seen.append(city)
        return f"sunny in {city}"

    result = await agent.run(f"Weather in {said} [[use weather]]")
    assert seen == [said]
    assert f"sunny in {said}" in result.output


async def structured(model) -> None:
    said = token()
    assert (await Agent(model, output_type=City).run(f"City {said}")).output == City(name=said, people=7)


@case
async def chat_run():
    await run(MODELS["chat"])


@case
async def chat_stream():
    await stream(MODELS["chat"])


@case
async def chat_tools():
    await tools(MODELS["chat"])


@case
async def chat_structured():
    await structured(MODELS["chat"])


@case
async def responses_run():
    await run(MODELS["responses"])


@case
async def responses_stream():
    await stream(MODELS["responses"])


@case
async def responses_tools():
    await tools(MODELS["responses"])


@case
async def responses_structured():
    await structured(MODELS["responses"])


@case
async def claude_run():
    await run(MODELS["claude"])


@case
async def claude_stream():
    await stream(MODELS["claude"])


@case
async def claude_tools():
    await tools(MODELS["claude"])


@case
async def claude_structured():
    await structured(MODELS["claude"])


@case
async def unknown_model():
    agent = Agent(OpenAIChatModel("nothing-such", provider=openai))
    assert (await raised_later(ModelHTTPError, agent.run("hi"))).status_code == 404


main()
