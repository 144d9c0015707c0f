"""Coding agents are recognised by what they send by themselves."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.agents import AGENTS, recognise
from gateway.domain.request import CompletionRequest
from tests.support.requests import small_request, user

UUID = "0f3c2f0e-6a1f-4b7e-9d53-0a1b2c3d4e5f"
CHAT, MESSAGES = "openai_chat", "anthropic_messages"


def seen(headers: dict[str, str], **fields: Any) -> CompletionRequest:
    system = fields.pop("system", None)
    request = small_request(messages=[*([{"role": "system", "content": system}] if system else []), user()], **fields)
    recognise(request, {name.encode(): value.encode() for name, value in headers.items()})
    return request


@pytest.mark.parametrize(
    ("agent", "session", "headers", "fields"),
    [
        (
            "claude_code",
            UUID,
            {"user-agent": "claude-cli/2.1.211 (external, cli)", "x-claude-code-session-id": UUID},
            {},
        ),
        (
            "claude_code",
            UUID,
            {"user-agent": "claude-cli/2.0.1 (external, cli)"},
            {"metadata": {"user_id": f"user_{'0' * 64}_account_{UUID[::-1]}_session_{UUID}"}},
        ),
        (
            "claude_code",
            UUID,
            {"user-agent": "claude-cli/2.1.80 (external, cli)"},
            {"metadata": {"user_id": orjson.dumps({"device_id": "d", "session_id": UUID}).decode()}},
        ),
        ("codex", UUID, {"user-agent": "codex_cli_rs/0.156.1 (Mac OS 15; arm64)", "session-id": UUID}, {}),
        ("codex", UUID, {"user-agent": "codex_exec/0.40 (Linux)", "session_id": UUID}, {}),
        ("codex", UUID, {"user-agent": "codex-tui/0.149.1 (Linux)"}, {"prompt_cache_key": UUID}),
        ("cursor", UUID, {}, {"metadata": {"cursorConversationId": UUID}}),
        ("cline", "t1", {"http-referer": "https://cline.bot", "x-title": "Cline", "x-task-id": "t1"}, {}),
        ("aider", "", {"http-referer": "https://aider.chat", "x-title": "Aider"}, {}),
        ("aider", "", {}, {"system": "Act as an expert software developer.\nAlways use best practices."}),
        ("openhands", "s1", {"x-title": "OpenHands"}, {"metadata": {"session_id": "s1"}}),
        ("opencode", "ses_1", {"user-agent": "opencode/1.2.3 (linux)", "x-session-affinity": "ses_1"}, {}),
        ("opencode", "ses_2", {"x-opencode-session": "ses_2"}, {}),
        ("", "", {"user-agent": "OpenAI/Python 2.0", "session-id": UUID}, {"metadata": {"user_id": "u"}}),
        ("", "", {}, {"system": "You are a helpful assistant who knows that you are not Claude Code."}),
        ("", "", {"x-title": "Mine", "referer": "https://mine.example"}, {}),
    ],
)
def test_each_agent_is_known_with_its_session(
    agent: str, session: str, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    request = seen(headers, **fields)
    assert (request.agent, request.agent_session) == (agent, session)


def test_without_an_id_a_session_is_what_begins_alike() -> None:
    system = "<SOUL>\nYou are OpenHands agent, a helpful AI assistant"
    first, second = (seen({}, system=system, max_tokens=tokens) for tokens in (5, 6))
    other = seen({}, system=f"{system} in another project")
    assert first.agent == "openhands"
    assert first.agent_session.startswith("turns-")
    assert first.agent_session == second.agent_session != other.agent_session


@pytest.mark.parametrize(
    "user_id", ["{broken", "{}", '{"session_id": 5}', "user_1_session_no", "x" * 129, "two words", "", 5, None]
)
def test_an_id_that_is_none_is_not_used(user_id: object) -> None:
    request = seen({"user-agent": "claude-cli/2.1"}, metadata={"user_id": user_id})
    assert request.agent == "claude_code"
    assert request.agent_session.startswith("turns-")


@pytest.mark.parametrize("metadata", [[], "text", {"cursorConversationId": ["a"]}, {"user_id": "[]"}])
def test_odd_metadata_disturbs_nothing(metadata: object) -> None:
    seen({"user-agent": "claude-cli/2.1"}, metadata=metadata)


def test_the_table_has_one_row_for_each_agent() -> None:
    names = [agent.name for agent in AGENTS]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 16 for name in names)  # the ledger's column
