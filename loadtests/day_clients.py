"""The clients of a mixed day: single requests at their times, and agents whose requests wait for the one before."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from loadtests.day_gateway import team_of
from loadtests.day_plan import Asked, Day
from loadtests.day_provider import TURN_BASE
from loadtests.day_questions import Question
from loadtests.day_worker import RECORDED_AT

_MARK = re.compile(rb"\[\[(.+?)\|(.+?)\]\]")
_AGENT = {"user-agent": "claude-cli/2.1.39 (external, cli)", "anthropic-version": "2023-06-01"}
TURN_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Answered:
    """What a client got. `of` and `model`: the question and the model of the answer, as it says itself; empty if there
    was no answer, or if the answer was vectors."""

    asked: Asked
    status: int
    first_byte_ms: float
    cache: str
    of: str = ""
    model: str = ""


class Clients:
    """Sends a day to a gateway."""

    def __init__(self, url: str, keys: Mapping[str, str], pools: Mapping[str, Sequence[str]]) -> None:
        """`keys`: team → API key."""
        self._url, self._keys, self._pools = url, keys, pools
        self.answered: list[Answered] = []

    async def run(self, day: Day, seconds: float) -> None:
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            begin = time.monotonic()
            work = [self._single(session, one, begin) for one in day.singles]
            starts = [seconds * place / max(1, 2 * len(day.sessions)) for place, _ in enumerate(day.sessions)]
            for start, turns in zip(starts, day.sessions, strict=True):
                work.append(self._agent(session, turns, begin + start))
            await asyncio.gather(*work)

    async def _single(self, session: aiohttp.ClientSession, asked: Asked, begin: float) -> None:
        await asyncio.sleep(max(0.0, begin + asked.at - time.monotonic()))
        await self._ask(session, asked)

    async def _agent(self, session: aiohttp.ClientSession, turns: Sequence[Asked], begin: float) -> None:
        await asyncio.sleep(max(0.0, begin - time.monotonic()))
        for asked in turns:
            await self._ask(session, asked)
            await asyncio.sleep(TURN_PAUSE_S)

    async def _ask(self, session: aiohttp.ClientSession, asked: Asked) -> None:
        path, body, headers = request_of(asked, self._pools[asked.question.pool][0])
        headers = {**headers, "authorization": f"Bearer {self._keys[team_of(asked.stratum, asked.question.pool)]}"}
        began = time.monotonic()
        try:
            async with session.post(self._url + path, data=body, headers=headers) as answer:
                text = await answer.content.readany()
                first_ms = (time.monotonic() - began) * 1000
                while b"]]" not in text and (more := await answer.content.readany()):
                    text += more
                await answer.read()
                found = _MARK.search(text)
                of, model = (found[1].decode(), found[2].decode()) if found else ("", "")
                cache = answer.headers.get("x-thriftgate-cache", "")
                self.answered.append(Answered(asked, answer.status, first_ms, cache, of, model))
        except (aiohttp.ClientError, TimeoutError):
            self.answered.append(Answered(asked, 0, (time.monotonic() - began) * 1000, ""))


def request_of(asked: Asked, reference: str) -> tuple[str, bytes, dict[str, str]]:
    """(Path, body, headers). Agents and embeddings name their model, all others ask for `auto`."""
    question = asked.question
    if question.texts:
        body: dict[str, Any] = {"model": reference, "input": list(question.texts)}
        return "/v1/embeddings", orjson.dumps(body), _JSON
    if question.session:
        headers = {**_JSON, **_AGENT, RECORDED_AT: str(question.at)}
        return "/v1/messages", orjson.dumps(agent_body(question, reference)), headers
    body = {"model": "auto", "messages": list(question.messages), "temperature": 0}
    headers = dict(_JSON)
    if asked.stratum == "deferrable":
        headers["x-thriftgate-priority"] = "batch"
    else:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return "/v1/chat/completions", orjson.dumps(body), headers


def agent_body(question: Question, model: str) -> dict[str, Any]:
    """A request of Claude Code, with its marks."""
    mark = {"cache_control": {"type": "ephemeral"}}
    tool = {"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}
    return {
        "model": model,
        "max_tokens": TURN_BASE + question.turn,
        "stream": True,
        "metadata": {"user_id": f"user_day_account__session_{question.session}"},
        "tools": [tool],
        "system": [*shared_system(question), {"type": "text", "text": question.system, **mark}],
        "messages": list(question.messages),
    }


def shared_system(question: Question) -> list[dict[str, str]]:
    """The block of the system prompt that is equal in other sessions; empty if there is none."""
    return [{"type": "text", "text": question.shared}] if question.shared else []


_JSON = {"content-type": "application/json"}
