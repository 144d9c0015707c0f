"""LlamaIndex's own LLM classes for OpenAI, its Responses, and Anthropic, and its embeddings."""

from __future__ import annotations

import openai
from cases import BASE, EMBEDDER, KEY, MODEL, V1, case, main, raised, token
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai import OpenAI, OpenAIResponses

# LlamaIndex looks its window up in a list of names, so it is told a name that it knows; the gateway hears MODEL.
KNOWN = {"gpt-4.1", "gpt-4.1-mini"}


class AnyOpenAI(OpenAI):
    """Any model's name."""

    @property
    def metadata(self):
        return super().metadata if self.model in KNOWN else self._as("gpt-4.1")

    def _as(self, name):
        return OpenAI(model=name, api_key="-").metadata


class AnyResponses(OpenAIResponses):
    """Any model's name."""

    @property
    def metadata(self):
        return super().metadata if self.model in KNOWN else OpenAI(model="gpt-4.1", api_key="-").metadata


class AnyAnthropic(Anthropic):
    """Any model's name."""

    @property
    def metadata(self):
        known = "claude" in self.model
        return super().metadata if known else Anthropic(model="claude-sonnet-4-5", api_key="-").metadata


chat = AnyOpenAI(model=MODEL, api_base=V1, api_key=KEY, max_retries=0)
responses = AnyResponses(model=MODEL, api_base=V1, api_key=KEY, max_retries=0)
claude = AnyAnthropic(model=MODEL, base_url=BASE, api_key=KEY, max_retries=0)


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


TOOL = FunctionTool.from_defaults(fn=weather)


def plain(model) -> None:
    said = token()
    assert said in model.complete(f"Say {said}").text
    said = token()
    assert said in model.chat([ChatMessage(role="user", content=f"Chat {said}")]).message.content


async def stream(model) -> None:
    said = token()
    assert said in "".join(piece.delta or "" for piece in model.stream_chat([ChatMessage(content=f"Stream {said}")]))
    pieces = await model.astream_chat([ChatMessage(content=f"Again {said}")])
    assert said in "".join([piece.delta or "" async for piece in pieces])


def tools(model) -> None:
    said = token()
    answer = model.predict_and_call([TOOL], f"Weather in {said} [[use weather]]")
    assert f"sunny in {said}" in str(answer)


@case
def chat_plain():
    plain(chat)


@case
async def chat_stream():
    await stream(chat)


@case
def chat_tools():
    tools(chat)


@case
def responses_plain():
    plain(responses)


@case
async def responses_stream():
    await stream(responses)


@case
def responses_tools():
    tools(responses)


@case
def claude_plain():
    plain(claude)


@case
async def claude_stream():
    await stream(claude)


@case
def claude_tools():
    tools(claude)


@case
def embeddings():
    embedder = OpenAIEmbedding(model_name=EMBEDDER, api_base=V1, api_key=KEY)
    assert [len(vector) for vector in embedder.get_text_embedding_batch(["one", "two"])] == [4, 4]


@case
def wrong_key():
    other = AnyOpenAI(model=MODEL, api_base=V1, api_key="sk-nobody", max_retries=0)
    raised(openai.AuthenticationError, other.complete, "hi")


main()
