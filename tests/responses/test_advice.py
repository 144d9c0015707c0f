"""What stored responses show: unused tools, output limits that are too large, and recurring instructions."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.context.estimate import estimate
from gateway.domain.policy import Policy
from gateway.domain.tenant import Key, Tenant
from gateway.ledger.reports.advice import Overview
from gateway.responses.advice import advise, read
from gateway.responses.store import Responses, StoredResponse
from gateway.state.sql.database import Database

LONG = "Answer as a clerk of the parcel office in Leeds would. " * 120
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("track", "refund")]
VIEW = Overview("search", input_cost=3_000_000, input_tokens=1)


async def store(database: Database, count: int, team: str = "search", **facts: Any) -> None:
    kept = Responses(database, clock=lambda: 1_000_000.0)
    tenant = Tenant(Key("k", team), Policy(team=team))
    call = {"type": "function_call", "id": "fc", "name": "track", "arguments": "{}"}
    for number in range(count):
        body = {"id": f"resp_{number}", "output": [call], "tools": TOOLS, "instructions": LONG}
        body |= {"max_output_tokens": 8_000, "usage": {"input_tokens": 5_000, "output_tokens": 40}, **facts}
        assert await kept.put(tenant, StoredResponse(f"resp_{number}", "s", body, []))


async def found(database: Database, team: str = "search") -> dict[str, Any]:
    seen = await database.run(lambda connection: read(connection, team, 0.0), writes=False)
    return {one.kind: one for one in advise(VIEW, seen)}


async def test_an_unused_tool_a_large_limit_and_equal_instructions_are_found(database: Database) -> None:
    await store(database, 20)
    findings = await found(database)
    assert set(findings) == {"unused tool", "max_output_tokens", "recurring instructions"}
    assert (findings["unused tool"].subject, findings["unused tool"].requests) == ("refund", 20)
    assert findings["recurring instructions"].month_pico == pytest.approx(30 * 20 * estimate(LONG) * 3_000_000)
    assert (findings["max_output_tokens"].subject, findings["max_output_tokens"].month_pico) == ("8000", 0.0)
    assert "parcel" not in "".join(one.text + one.subject for one in findings.values())


async def test_few_responses_fitting_limits_and_another_team_give_no_advice(database: Database) -> None:
    await store(database, 19)
    assert await found(database) == {}
    assert await found(database, "chat") == {}
    await store(database, 25, "chat", tools=[{"type": "web_search"}], instructions="Be brief.", max_output_tokens=100)
    assert await found(database, "chat") == {}
