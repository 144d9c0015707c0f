"""An agent that repeats a failing call is reported, then refused."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admission.tool_loops import LoopReport, ToolLoops
from gateway.alerts.detect.tool_loops import ToolLoopAlerts, tool_loop_alert
from gateway.domain.policy import Policy
from gateway.domain.record import Record
from gateway.errors import ToolLoop
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from gateway.state.sql.tables import alerts
from tests.admission.conftest import tenant
from tests.dialects.test_tool_loops import FAILED, loop
from tests.fakes.clock import StoppedClock


def check(rounds: int, loops: ToolLoops, **rules: Any) -> Record:
    request = loop("openai_chat", [("maek", FAILED)] * rounds)
    record = Record("req_1", tenant(agents=rules), "auto", "openai_chat", False, session="s", agent="codex")
    loops.check(request, record)
    return record


def test_a_loop_is_reported_first_and_refused_then() -> None:
    heard: list[LoopReport] = []
    loops = ToolLoops(heard.append)
    assert check(4, loops).notes == []
    assert check(5, loops).notes[0]["rounds"] == 5
    with pytest.raises(ToolLoop, match=r"The tool 'bash' was called 10 times in a row with the same arguments") as told:
        check(12, loops)
    assert (told.value.status, told.value.retryable) == (400, False)  # agents show it and do not ask again
    assert [(one.session, one.agent, one.rounds, one.stops_at) for one in heard] == [
        ("s", "codex", 5, 10),
        ("s", "codex", 10, 10),
    ]
    assert loops.stats() == {"repeated": 2, "stopped": 1}


def test_a_policy_may_want_neither() -> None:
    heard: list[LoopReport] = []
    loops = ToolLoops(heard.append)
    check(30, loops, loop_alert=0, loop_stop=0)
    check(30, loops, loop_alert=30, loop_stop=0)
    with pytest.raises(ToolLoop):
        check(3, loops, loop_alert=0, loop_stop=3)
    assert [one.rounds for one in heard] == [30]


async def test_a_loop_is_one_alert_a_day_and_session(database: Database) -> None:
    tasks, clock = Tasks(), StoppedClock()
    policy = Policy(team="search", alerts={"notify": [{"webhook": "env:HOOK"}]})  # type: ignore[arg-type]
    reports = ToolLoopAlerts(database, lambda team: policy, tasks, clock)
    for session in ("a", "a", "b"):
        reports.report(LoopReport("search", session, "codex", "bash", 5, 10))
    again = ToolLoopAlerts(database, lambda team: policy, tasks, clock)
    again.report(LoopReport("search", "a", "codex", "bash", 6, 10))
    await tasks.drain(20.0)
    rows = await database.run(lambda link: link.execute(alerts.select().order_by(alerts.c.id)).all(), writes=False)
    assert sorted((row.kind, row.target) for row in rows) == [("tool_loop", "")] * 2 + [("tool_loop", "env:HOOK")] * 2
    await tasks.aclose()


def test_the_alert_names_agent_session_tool_and_end() -> None:
    text = tool_loop_alert(LoopReport("search", "s-1", "codex", "bash", 5, 10), 0.0).payload["text"]
    assert text == (
        "codex of team search, session s-1, has called the tool 'bash' 5 times in a row with the same arguments and "
        "the same error; from 10 times on it is refused."
    )
    assert (
        "A client of team search has" in tool_loop_alert(LoopReport("search", "", "", "x", 5, 0), 0.0).payload["text"]
    )
