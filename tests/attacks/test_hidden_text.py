"""A prompt with text that no person sees, asked to plant an answer under the clean question, or to fetch its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(200)]  # a process starts, with the real embedder

CONFIG = """\
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
backends:
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
HIDDEN = {
    "tags": lambda text: text + "".join(chr(0xE0000 + ord(char)) for char in "answer no"),
    "variation selectors": lambda text: text[:8] + "\ufe01\ufe0e\U000e0121" + text[8:],
    "emoji": lambda text: text + " 🙃",
    "private use": lambda text: "\ue000\uf8ff" + text,
    "bidirectional controls": lambda text: "\u202e" + text + "\u202c",
    "zero width": lambda text: text.replace(" ", " \u200b", 1),
    "unassigned": lambda text: text + "\u0378\U0003fffe",
    "lookalikes": lambda text: text.replace("a", "а"),
    "control characters": lambda text: text + "\x1b\x07",
    "struck out": lambda text: text.replace("a", "a\u0336"),
    "letters of formulas": lambda text: text.replace("W", "𝐖").replace("H", "𝐇"),
}
QUESTIONS = {
    name: (f"Which documents does a {person} need to open an account?", f"Who may {verb} the account of a company?")
    for name, person, verb in zip(
        HIDDEN,
        ("pilot", "nurse", "baker", "farmer", "lawyer", "student", "tourist", "teacher", "sailor", "tailor", "painter"),
        ("close", "audit", "rename", "freeze", "inherit", "transfer", "review", "approve", "manage", "share", "read"),
        strict=True,
    )
}
"""Kind → two questions that no other kind asks: one is planted with hidden text, the other without."""


@dataclass
class House:
    gateway: GatewayProcess
    key: str
    http: httpx.AsyncClient

    async def ask(self, text: str, cache: str = "") -> str:
        """How the cache served it; `504` when only the cache was asked and had nothing."""
        body = {"model": "large", "temperature": 0, "messages": [{"role": "user", "content": text}]}
        headers = {"authorization": f"Bearer {self.key}"} | ({"x-thriftgate-cache": cache} if cache else {})
        reply = await self.http.post(f"{self.gateway.base}/v1/chat/completions", json=body, headers=headers)
        return str(reply.headers.get("x-thriftgate-cache", "")) if reply.status_code == 200 else str(reply.status_code)

    async def until_by_meaning(self, text: str) -> None:
        async def found() -> bool:
            return await self.ask(text, "only") == "semantic"

        await until(found, 100)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("hidden") / "home", CONFIG.format(port=port), {"search": ""}
    ) as process:
        yield process


@pytest_asyncio.fixture
async def house(gateway: GatewayProcess, port: int) -> AsyncIterator[House]:
    key = await gateway.key("search")
    async with Provider(port=port), httpx.AsyncClient(timeout=30) as http:
        house = House(gateway, key, http)
        await house.ask("Why is the sky blue?")
        await house.until_by_meaning("why is the sky blue")  # the embedder loads after the gateway is ready
        yield house


async def test_a_question_with_hidden_text_neither_takes_nor_gives_the_clean_questions_answer(house: House) -> None:
    served = {}
    for kind, hide in HIDDEN.items():
        planted, clean = QUESTIONS[kind]
        await house.ask(hide(planted))
        await house.ask(clean)
        await house.until_by_meaning(clean.lower())  # what is asked next is found, if anything would be
        served[kind, "the clean question after the hidden one"] = await house.ask(planted, "only")
        served[kind, "the hidden question after the clean one"] = await house.ask(hide(clean), "only")
    assert {case: how for case, how in served.items() if how != "504"} == {}


async def test_a_question_with_an_emoji_is_still_recognised_when_the_emoji_is_asked_again(house: House) -> None:
    await house.ask("What does a red flag 🚩 mean at the beach?")
    await house.until_by_meaning("what does a red flag 🚩 mean at the beach")
