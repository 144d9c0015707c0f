"""More frameworks in Python, an agent loop with a tool each: smolagents, haystack, autogen, agno, strands, dspy, SK."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches one at import
os.environ["AGNO_TELEMETRY"] = "false"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from cases import BASE, KEY, MODEL, V1, case, main, token


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: where
    """
    return f"sunny in {city}"


def weather_prompt(said: str) -> str:
    return f"Weather in {said} [[use weather]]"


@case
def dspy():
    import dspy

    said = token()
    model = dspy.LM(f"openai/{MODEL}", api_base=V1, api_key=KEY, cache=False, num_retries=0)
    assert said in model(f"Say {said}")[0]
    newer = dspy.LM(f"openai/{MODEL}", model_type="responses", api_base=V1, api_key=KEY, cache=False, num_retries=0)
    assert said in str(newer(f"Say {said}")[0])


@case
def smolagents():
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    class Model(OpenAIServerModel):
        supports_stop_parameter = False  # as it says of the models that it knows to have none: Responses has none

    said, model = token(), Model(model_id=MODEL, api_base=V1, api_key=KEY)
    agent = ToolCallingAgent(tools=[tool(weather)], model=model, verbosity_level=0)
    assert said in agent.run(weather_prompt(said))


@case
def haystack():
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    said, pieces = token(), []
    generator = OpenAIChatGenerator(Secret.from_token(KEY), MODEL, api_base_url=V1, max_retries=0)
    agent = Agent(
        chat_generator=generator, tools=[create_tool_from_function(weather)], streaming_callback=pieces.append
    )
    ended = agent.run(messages=[ChatMessage.from_user(weather_prompt(said))])
    assert f"sunny in {said}" in ended["messages"][-1].text
    assert len(pieces) > 5


@case
def haystack_claude():
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret
    from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator

    os.environ["ANTHROPIC_BASE_URL"] = BASE
    said = token()
    generator = AnthropicChatGenerator(Secret.from_token(KEY), MODEL)
    agent = Agent(chat_generator=generator, tools=[create_tool_from_function(weather)])
    ended = agent.run(messages=[ChatMessage.from_user(weather_prompt(said))])
    assert f"sunny in {said}" in ended["messages"][-1].text


async def autogen(client) -> None:
    from autogen_agentchat.agents import AssistantAgent

    said = token()
    agent = AssistantAgent("weather", client, tools=[weather], reflect_on_tool_use=True, model_client_stream=True)
    ended = await agent.run(task=weather_prompt(said))
    assert f"sunny in {said}" in ended.messages[-1].content


INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
}


@case
async def autogen_chat():
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    await autogen(OpenAIChatCompletionClient(model=MODEL, base_url=V1, api_key=KEY, model_info=INFO, max_retries=0))


@case
async def autogen_claude():
    from autogen_ext.models.anthropic import AnthropicChatCompletionClient

    await autogen(AnthropicChatCompletionClient(model=MODEL, base_url=BASE, api_key=KEY, model_info=INFO))


def agno(model) -> None:
    from agno.agent import Agent

    said = token()
    assert f"sunny in {said}" in Agent(model=model, tools=[weather], telemetry=False).run(weather_prompt(said)).content
    agent = Agent(model=model, tools=[weather], telemetry=False)
    pieces = [
        event.content or "" for event in agent.run(weather_prompt(said), stream=True) if event.event == "RunContent"
    ]
    assert f"sunny in {said}" in "".join(pieces)


@case
def agno_chat():
    from agno.models.openai import OpenAIChat

    agno(OpenAIChat(id=MODEL, base_url=V1, api_key=KEY, max_retries=0))


@case
def agno_responses():
    from agno.models.openai import OpenAIResponses

    agno(OpenAIResponses(id=MODEL, base_url=V1, api_key=KEY, max_retries=0))


@case
def agno_claude():
    from agno.models.anthropic import Claude

    agno(Claude(id=MODEL, api_key=KEY, client_params={"base_url": BASE}))


def strands(model) -> None:
    from strands import Agent, tool

    said = token()
    agent = Agent(model=model, tools=[tool(weather)], callback_handler=None)
    assert f"sunny in {said}" in str(agent(weather_prompt(said)))


@case
def strands_chat():
    from strands.models.openai import OpenAIModel

    strands(OpenAIModel(client_args={"base_url": V1, "api_key": KEY}, model_id=MODEL))


@case
def strands_claude():
    from strands.models.anthropic import AnthropicModel

    strands(AnthropicModel(client_args={"base_url": BASE, "api_key": KEY}, model_id=MODEL, max_tokens=500))


@case
async def semantic_kernel():
    from openai import AsyncOpenAI
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Plugin:
        @kernel_function
        def weather(self, city: str) -> str:
            """The weather in a city."""
            return f"sunny in {city}"

    said = token()
    service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0))
    agent = ChatCompletionAgent(service=service, name="weather", plugins=[Plugin()])
    answer = await agent.get_response(messages=f"Weather in {said} [[use Plugin-weather]]")
    assert f"sunny in {said}" in str(answer.message.content)


main()
