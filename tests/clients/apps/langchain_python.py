"""LangChain in Python, over OpenAI's chat and Responses and over Anthropic's messages; and an agent on LangGraph."""

from __future__ import annotations

import os
from importlib.util import find_spec

import anthropic
import openai
from cases import BASE, EMBEDDER, KEY, MODEL, SPENT_KEY, V1, case, main, raised, token
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

COMMON = {"model": MODEL, "api_key": KEY, "max_retries": 0}
chat = ChatOpenAI(base_url=V1, **COMMON)
responses = ChatOpenAI(base_url=V1, use_responses_api=True, **COMMON)
claude = ChatAnthropic(base_url=BASE, max_tokens=1000, **COMMON)


class City(BaseModel):
    """A city."""

    name: str
    people: int


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def invoke(model) -> None:
    said = token()
    answer = model.invoke([("system", "Be brief."), ("user", f"Say {said}")])
    assert said in answer.text
    assert answer.usage_metadata["input_tokens"] > 0
    assert answer.usage_metadata["output_tokens"] > 0


async def stream(model) -> None:
    said = token()
    chunks = list(model.stream(f"Stream {said}"))
    assert len(chunks) > 2
    assert said in "".join(chunk.text for chunk in chunks)
    assert said in "".join([chunk.text async for chunk in model.astream(f"Stream {said}")])


def tools(model) -> None:
    said = token()
    bound = model.bind_tools([weather])
    messages = [HumanMessage(f"Weather in {said} [[use weather]]")]
    messages.append(bound.invoke(messages))
    call = messages[-1].tool_calls[0]
    assert call["args"] == {"city": said}
    messages.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))
    assert f"sunny in {said}" in bound.invoke(messages).text


def structured(model) -> None:
    said = token()
    assert model.with_structured_output(City).invoke(f"City {said}") == City(name=said, people=7)


def agent(model) -> None:
    said = token()
    loop = create_agent(model, [weather])
    steps = list(loop.stream({"messages": [("user", f"Weather in {said} [[use weather]]")]}, stream_mode="values"))
    messages = steps[-1]["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert f"sunny in {said}" in messages[-1].text


@case
def chat_invoke():
    invoke(chat)


@case
async def chat_stream():
    await stream(chat)


@case
def chat_tools():
    tools(chat)


@case
def chat_structured():
    structured(chat)


@case
def chat_structured_by_call():
    said = token()
    bound = chat.with_structured_output(City, method="function_calling")
    assert bound.invoke(f"City {said}") == City(name=said, people=7)


@case
def chat_agent():
    agent(chat)


@case
def responses_invoke():
    invoke(responses)


@case
async def responses_stream():
    await stream(responses)


@case
def responses_tools():
    tools(responses)


@case
def responses_structured():
    structured(responses)


@case
def responses_agent():
    agent(responses)


@case
def claude_invoke():
    invoke(claude)


@case
async def claude_stream():
    await stream(claude)


@case
def claude_tools():
    tools(claude)


@case
def claude_structured():
    structured(claude)


@case
def claude_agent():
    agent(claude)


@case
def embeddings():
    """It sends token arrays; the vocabulary that it would fetch lies in another package here."""
    litellm = find_spec("litellm").submodule_search_locations[0]
    os.environ["TIKTOKEN_CACHE_DIR"] = f"{litellm}/litellm_core_utils/tokenizers"
    embedder = OpenAIEmbeddings(base_url=V1, api_key=KEY, model=EMBEDDER)
    vectors = embedder.embed_documents(["one", "three words here"])
    assert len(vectors) == 2
    assert len(vectors[0]) == 4


@case
def errors():
    spent = ChatOpenAI(base_url=V1, model=MODEL, api_key=SPENT_KEY, max_retries=0)
    raised(openai.RateLimitError, spent.invoke, "hi")
    unknown = ChatAnthropic(base_url=BASE, model="nothing-such", api_key=KEY, max_retries=0, max_tokens=5)
    raised(anthropic.NotFoundError, unknown.invoke, "hi")
    nobody = ChatOpenAI(base_url=V1, model=MODEL, api_key="sk-nobody", max_retries=0)
    raised(openai.AuthenticationError, lambda: list(nobody.stream("hi")))


main()
