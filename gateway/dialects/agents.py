"""Recognises coding agents by the headers and bodies that they send, and reads the ids of the agents' sessions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from gateway.domain.request import CompletionRequest


@dataclass(frozen=True, slots=True)
class AgentMarks:
    """The marks by which one coding agent is recognised. A request that has one of these marks was sent by the
    agent."""

    name: str
    user_agents: tuple[bytes, ...] = ()
    """Beginnings of the `user-agent` header, in lower case."""
    titles: tuple[bytes, ...] = ()
    """Values of the `x-title` header in lower case. In this header OpenRouter expects the name of the app."""
    referers: tuple[bytes, ...] = ()
    """Beginnings of the `http-referer` or `referer` header."""
    own_headers: tuple[bytes, ...] = ()
    """Headers that only this agent sends. The first header contains the id of the agent's session."""
    session_headers: tuple[bytes, ...] = ()
    """Further headers with the id of the agent's session. Other clients send these headers too."""
    metadata: tuple[str, ...] = ()
    """Names of fields in the body's `metadata` that contain the id of the agent's session. A field whose name begins
    with the agent's name is also a mark of the agent."""
    opening: str = ""
    """A phrase near the beginning of the agent's system prompt."""
    by_first_turns: bool = True
    """How sessions without an id are told apart. True: requests with the same system prompt and first question belong
    to one session. False: the agent changes these during a session, so the session stays unknown."""


AGENTS = (
    AgentMarks(
        "claude_code",
        user_agents=(b"claude-cli/", b"claude-code/"),
        own_headers=(b"x-claude-code-session-id",),
        metadata=("user_id",),
        opening="You are Claude Code",
    ),
    AgentMarks(
        "codex",
        user_agents=(b"codex_cli_rs/", b"codex_exec/", b"codex-tui/", b"codex_vscode/", b"codex_sdk_ts/", b"codex "),
        session_headers=(b"session-id", b"session_id", b"conversation_id"),
    ),
    AgentMarks("cursor", user_agents=(b"cursor/",), metadata=("cursorConversationId",)),
    AgentMarks(
        "cline",
        user_agents=(b"cline/",),
        titles=(b"cline",),
        referers=(b"https://cline.bot",),
        session_headers=(b"x-task-id",),
        opening="You are Cline",
    ),
    AgentMarks(
        "aider",
        user_agents=(b"aider/",),
        titles=(b"aider",),
        referers=(b"https://aider.chat",),
        opening="Act as an expert software developer",
        by_first_turns=False,  # the agent's map of the repository comes before the first question and changes
    ),
    AgentMarks(
        "openhands",
        user_agents=(b"openhands/",),
        titles=(b"openhands",),
        referers=(b"https://docs.all-hands.dev", b"https://github.com/openhands"),
        metadata=("session_id",),
        opening="You are OpenHands agent",
    ),
    AgentMarks(
        "opencode",
        user_agents=(b"opencode/",),
        titles=(b"opencode",),
        referers=(b"https://opencode.ai",),
        own_headers=(b"x-opencode-session",),
        session_headers=(b"x-session-affinity", b"x-session-id", b"session_id"),
        opening="You are opencode",
    ),
)
"""If a request has the marks of several agents, the first agent in this list is chosen."""

_BY_USER_AGENT = tuple((beginning, agent) for agent in AGENTS for beginning in agent.user_agents)
_USER_AGENTS = tuple(beginning for beginning, _ in _BY_USER_AGENT)
_BY_TITLE = {title: agent for agent in AGENTS for title in agent.titles}
_BY_REFERER = tuple((beginning, agent) for agent in AGENTS for beginning in agent.referers)
_BY_HEADER = tuple((name, agent) for agent in AGENTS for name in agent.own_headers)
_BY_FIELD = tuple((name, agent) for agent in AGENTS for name in agent.metadata if name.startswith(agent.name))
_BY_OPENING = tuple((agent.opening, agent) for agent in AGENTS if agent.opening)
_MARKS = frozenset((*(name for name, _ in _BY_HEADER), b"user-agent", b"x-title", b"http-referer", b"referer"))
"""Names of the headers by which an agent may be recognised."""
_RARE_MARKS = _MARKS - {b"user-agent"}
_OPENINGS = re.compile("|".join(re.escape(phrase) for phrase, _ in _BY_OPENING))
_OPENING_CHARACTERS = 200
_ID = re.compile(r"[!-~]{1,128}")
_LEGACY_ID = re.compile(r"_session_([0-9a-fA-F-]{36})$")
"""Matches the session id in the `metadata.user_id` of Claude Code before version 2.1: `user_…_account_…_session_UUID`.
"""
_DIGEST_BYTES = 12
_MOST_CHARACTERS = 4096
"""Number of characters at the beginning of each turn that are compared to distinguish sessions."""


def recognise(request: CompletionRequest, headers: Mapping[bytes, bytes]) -> None:
    """Set `request.agent` and `request.agent_session`, if an agent sent the request. `headers`: names in lower case."""
    agent = None
    if not _MARKS.isdisjoint(headers):
        agent = _by_headers(headers)
    turns = request.turns
    if agent is None and ("metadata" in request.body or (turns and turns[0].role == "system")):
        agent = _by_body(request)
    if agent is not None:
        request.agent = agent.name
        request.agent_session = _session(agent, request, headers)


def _by_headers(headers: Mapping[bytes, bytes]) -> AgentMarks | None:
    user_agent = headers.get(b"user-agent", b"").lower()
    if user_agent.startswith(_USER_AGENTS):
        return next(agent for beginning, agent in _BY_USER_AGENT if user_agent.startswith(beginning))
    if _RARE_MARKS.isdisjoint(headers):
        return None
    for name, agent in _BY_HEADER:
        if name in headers:
            return agent
    if (title := headers.get(b"x-title")) is not None and (named := _BY_TITLE.get(title.lower())) is not None:
        return named
    referer = headers.get(b"http-referer") or headers.get(b"referer")
    if referer is None:
        return None
    return next((agent for beginning, agent in _BY_REFERER if referer.lower().startswith(beginning)), None)


def _by_body(request: CompletionRequest) -> AgentMarks | None:
    if isinstance(metadata := request.body.get("metadata"), dict):
        for name, agent in _BY_FIELD:
            if name in metadata:
                return agent
    if not request.turns or request.turns[0].role != "system":
        return None
    found = _OPENINGS.search(request.turns[0].text[:_OPENING_CHARACTERS])
    return None if found is None else next(agent for phrase, agent in _BY_OPENING if phrase == found[0])


def _session(agent: AgentMarks, request: CompletionRequest, headers: Mapping[bytes, bytes]) -> str:
    """The id of the agent's session; empty if the id is unknown."""
    for name in (*agent.own_headers, *agent.session_headers):
        if id := _valid(headers.get(name, b"").decode("latin-1")):
            return id
    if isinstance(metadata := request.body.get("metadata"), dict):
        for field in agent.metadata:
            if id := _of_metadata(metadata.get(field)):
                return id
    if id := _valid(request.body.get("prompt_cache_key")):
        return id
    return _of_first_turns(request) if agent.by_first_turns else ""


def _of_metadata(value: Any) -> str:
    """The session id in `value`, a field of `metadata`. Claude Code writes the session id into `user_id`, as JSON
    or as part of a text.
    """
    if not isinstance(value, str):
        return ""
    if value.startswith("{"):
        try:
            packed = orjson.loads(value)
        except orjson.JSONDecodeError:
            return ""
        return _valid(packed.get("session_id"))
    if value.startswith("user_"):
        return found[1] if (found := _LEGACY_ID.search(value)) else ""
    return _valid(value)


def _valid(value: Any) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


def _of_first_turns(request: CompletionRequest) -> str:
    """A digest of the system prompt and the first question. It identifies a session, because all requests of a session
    have both in common."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for turn in request.turns:
        digest.update(f"\0{turn.role}\0{turn.text[:_MOST_CHARACTERS]}".encode("utf-8", "surrogatepass"))
        if turn.role == "user":
            return f"turns-{digest.hexdigest()}"
    return ""
