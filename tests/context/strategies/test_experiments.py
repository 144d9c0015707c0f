"""Variants of system prompts: which session gets which, what is sent, and what the ledger and the report say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from gateway.context.strategies.experiments import assigned, drawn, varied
from gateway.dialects.clients import DIALECTS
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Tenant
from gateway.ledger.reports.experiments import compare
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import open_gateway, record_of, tenant
from tests.fakes.provider import Reply
from tests.support.pieces import with_ending
from tests.support.requests import request_in, small_request, user

BRIEF = "Answer briefly."
VARIANTS = {"as-it-is": "", "brief": BRIEF}
WHO = tenant(experiments={"brevity": VARIANTS}, cache={"enabled": False}, context={"holdout": 0.0})
SESSIONS = {
    name: [f"s{n}" for n in range(40) if drawn("search", "brevity", f"s{n}", VARIANTS) == name] for name in VARIANTS
}


BEFORE = {
    "absent": b"",
    "text": b',"system":"You code."',
    "list": b',"system":[ {"type":"text","text":"n", "cache_control":{"type":"ephemeral"}} ]',
}


def of_session(session: str, dialect: str = "openai_chat", **fields: Any) -> CompletionRequest:
    return request_in(dialect, model="small", controls=Controls(session=session), **fields)


def test_sessions_are_spread_over_the_variants_and_keep_theirs() -> None:
    assert min(map(len, SESSIONS.values())) > 10
    for name, sessions in SESSIONS.items():
        assert all(assigned(of_session(each), WHO) == {"brevity": name} for each in sessions)


@pytest.mark.parametrize(
    "given",
    [
        of_session(""),
        request_in("openai_chat", controls=Controls(session="s1", untouched=True)),
        of_session("s1", "anthropic_messages", thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=4000),
        of_session("s1", reasoning_effort="high"),
        of_session("s1", "openai_responses", reasoning={"effort": "high"}),
        of_session("s1", "openai_responses", include=["reasoning.encrypted_content"]),
        of_session("s1", "openai_completions"),
    ],
    ids=["no name", "untouched", "thinking", "effort", "reasoning", "sealed reasoning", "no system prompt"],
)
def test_some_requests_take_no_part(given: CompletionRequest) -> None:
    assert assigned(given, WHO) == {}


def test_held_out_sessions_take_no_part() -> None:
    who = tenant(experiments={"brevity": VARIANTS}, context={"holdout": 1.0})
    assert assigned(of_session("s1"), who) == {}


@pytest.mark.parametrize(
    ("dialect", "fields", "field", "wanted"),
    [
        ("anthropic_messages", {}, "system", BRIEF),
        ("anthropic_messages", {"system": "You code."}, "system", f"You code.\n\n{BRIEF}"),
        (
            "anthropic_messages",
            {"system": [{"type": "text", "text": "You code."}]},
            "system",
            [{"type": "text", "text": "You code."}, {"type": "text", "text": BRIEF}],
        ),
        ("openai_responses", {"instructions": "You code."}, "instructions", f"You code.\n\n{BRIEF}"),
        (
            "openai_chat",
            {"messages": [{"role": "system", "content": "You code."}, user()]},
            "messages",
            [{"role": "system", "content": "You code."}, {"role": "system", "content": BRIEF}, user()],
        ),
    ],
)
def test_the_text_is_added_at_the_end_of_the_system_prompt(
    dialect: str, fields: dict[str, Any], field: str, wanted: Any
) -> None:
    given = of_session("s1", dialect, **fields)
    before = orjson.dumps(given.body)
    found = varied(given, BRIEF)
    assert orjson.loads(found.raw)[field] == wanted
    assert (found.id, found.controls) == (given.id, given.controls)
    assert orjson.dumps(given.body) == before
    if dialect == "openai_responses":
        assert found.echoed["instructions"] == "You code."


THOUGHT = {"type": "thinking", "thinking": "x", "signature": "s"}


@pytest.mark.parametrize(
    ("dialect", "asked", "thought"),
    [
        (
            "openai_chat",
            {"reasoning_effort": "low"},
            {"role": "assistant", "content": "", "thinking_blocks": [THOUGHT]},
        ),
        ("openai_chat", {}, {"role": "assistant", "content": "", "thinking_blocks": [THOUGHT]}),
        ("anthropic_messages", {}, {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "hi"}]}),
        ("openai_responses", {"reasoning": {}}, {"type": "reasoning", "summary": [], "encrypted_content": "g"}),
    ],
    ids=["chat", "chat, not asked for", "messages, not asked for", "responses"],
)
def test_the_system_prompt_before_signed_thinking_stays_what_it_was(
    dialect: str, asked: dict[str, Any], thought: dict[str, Any]
) -> None:
    field = "input" if dialect == "openai_responses" else "messages"
    requests = [
        of_session(SESSIONS["brief"][0], dialect, **{field: items}, **asked)
        for items in ([user()], [user(), thought, user()])
    ]
    first, second = [assigned(request, WHO) for request in requests]
    assert first == second == ({} if asked else {"brevity": "brief"})


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages", "openai_responses"])
@pytest.mark.parametrize("system", ["absent", "text", "list"])
def test_all_other_values_keep_their_bytes(dialect: str, system: str) -> None:
    field = "input" if dialect == "openai_responses" else "messages"
    tool = b'{"type":"function","name":"t","function":{"name":"t"},"input_schema":{"maximum":12345678901234567890123}}'
    given = b'{"model":"m", "%b":[ {"role":"user", "content":"caf\\u00e9"} ], "x":1E2,"tools":[%b]%b}' % (
        field.encode(),
        tool,
        BEFORE[system] if dialect == "anthropic_messages" else b"",
    )
    parsed = DIALECTS[dialect].parse(
        given.replace(b'"model"', b'"max_tokens":9,"model"'), "r", Controls(session="s"), {}
    )
    found = varied(parsed, BRIEF)
    assert tool in found.raw
    assert b'{"role":"user", "content":"caf\\u00e9"}' in found.raw
    assert b'"x":1E2' in found.raw


def test_an_experiment_needs_two_variants() -> None:
    with pytest.raises(ValidationError):
        Policy(team="search", experiments={"brevity": {"brief": BRIEF}})


async def test_the_ledger_knows_the_variant_and_the_report_compares_them(
    state: State, database: Database, tmp_path: Path
) -> None:
    async with open_gateway(state, database, tmp_path) as gateway:
        for name, tokens in (("as-it-is", 30), ("brief", 10)):
            for session in SESSIONS[name][:3]:
                gateway.provider.script(Reply(tokens=tokens))
                request = small_request("why?", controls=Controls(session=session))
                record = record_of(request, WHO)
                record.session, record.tags = session, {"experiment:brevity": "as the client likes"}
                async with await gateway.pipeline.serve(request, WHO, record, 1e12) as reply:
                    _ = [piece async for piece in with_ending(reply)]
        sent = [orjson.loads(each.body)["messages"] for each in gateway.provider.exchanges]
        assert [messages[0]["content"] for messages in sent] == ["why?"] * 3 + [BRIEF] * 3
        rows = await gateway.rows()
        assert {row["tags"] for row in rows[:3]} == {'{"experiment:brevity":"as-it-is"}'}
        plain, brief = await database.run(lambda link: compare(link, "search", 0.0))
    assert [(each.name, each.sessions, each.answers, each.rating) for each in (plain, brief)] == [
        ("as-it-is", 3, 3, None),
        ("brief", 3, 3, None),
    ]
    assert plain.output_tokens is not None
    assert brief.output_tokens is not None
    assert (plain.output_tokens.value, brief.output_tokens.value) == (30, 10)
    assert plain.usd_per_answer is not None
    assert brief.usd_per_answer is not None
    assert 0 < brief.usd_per_answer.high < plain.usd_per_answer.low


@pytest.mark.parametrize("who", [WHO, tenant(cache={"enabled": False})], ids=["takes no part", "no experiments"])
async def test_a_client_cannot_claim_a_variant(state: State, database: Database, tmp_path: Path, who: Tenant) -> None:
    async with open_gateway(state, database, tmp_path) as gateway:
        request = small_request("why?")
        record = record_of(request, who)
        record.tags = {"experiment:brevity": "brief", "experiment:none": "a", "feature": "search"}
        async with await gateway.pipeline.serve(request, who, record, 1e12) as reply:
            _ = [piece async for piece in with_ending(reply)]
        assert record.tags == {"feature": "search"}
