"""instructor: structured answers through tools, JSON schemas and Responses, over both vendors' SDKs."""

from __future__ import annotations

import instructor
from anthropic import Anthropic
from cases import BASE, KEY, MODEL, V1, case, main, token
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


def openai(mode: instructor.Mode) -> instructor.Instructor:
    return instructor.from_openai(OpenAI(base_url=V1, api_key=KEY, max_retries=0), mode=mode)


def request_for(said: str) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": f"City {said}"}], "response_model": City}


def check(mode: instructor.Mode) -> None:
    said = token()
    found = openai(mode).create(max_retries=0, **request_for(said))
    assert (found.name, found.people) == (said, 7)


@case
def by_tool():
    check(instructor.Mode.TOOLS)


@case
def by_schema():
    check(instructor.Mode.JSON_SCHEMA)


@case
def by_responses():
    check(instructor.Mode.RESPONSES_TOOLS)


@case
def streamed():
    said = token()
    partials = list(openai(instructor.Mode.TOOLS).create_partial(**request_for(said)))
    assert (partials[-1].name, partials[-1].people) == (said, 7)


@case
def claude():
    said = token()
    client = instructor.from_anthropic(Anthropic(base_url=BASE, api_key=KEY, max_retries=0))
    found = client.create(max_tokens=500, max_retries=0, **request_for(said))
    assert (found.name, found.people) == (said, 7)


main()
