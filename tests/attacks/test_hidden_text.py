"""A prompt with text that no person sees, asked to plant an answer under the clean question, or to fetch its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.requests import cache_result, post_chat
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


async def until_semantic(http: httpx.AsyncClient, text: str) -> None:
    """Wait until the semantic cache answers `text`."""

    async def found() -> bool:
        return await cache_result(http, text, cache="only", model="large") == "semantic"

    await until(found, 100)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("hidden") / "home", CONFIG.format(port=port), {"search": ""}
    ) as process:
        yield process


@pytest_asyncio.fixture
async def http(gateway: GatewayProcess, port: int) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {await gateway.key('search')}"}
    async with Provider(port=port), httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as http:
        await post_chat(http, "Why is the sky blue?", model="large", temperature=0)
        await until_semantic(http, "why is the sky blue")  # the embedder loads after the gateway is ready
        yield http


async def test_a_question_with_hidden_text_neither_takes_nor_gives_the_clean_questions_answer(
    http: httpx.AsyncClient,
) -> None:
    served = {}
    for kind, hide in HIDDEN.items():
        planted, clean = QUESTIONS[kind]
        for text in (hide(planted), clean):
            await post_chat(http, text, model="large", temperature=0)
        await until_semantic(http, clean.lower())  # what is asked next is found, if anything would be
        for case, text in (("clean after hidden", planted), ("hidden after clean", hide(clean))):
            served[kind, case] = await cache_result(http, text, cache="only", model="large")
    assert {case: how for case, how in served.items() if how != "504"} == {}


async def test_a_question_with_an_emoji_is_still_recognised_when_the_emoji_is_asked_again(
    http: httpx.AsyncClient,
) -> None:
    await post_chat(http, "What does a red flag 🚩 mean at the beach?", model="large", temperature=0)
    await until_semantic(http, "what does a red flag 🚩 mean at the beach")
