"""Stops an agent that repeats the same failing tool calls, and reports it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.dialects.tool_loops import repetition
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.errors import ToolLoop


class LoopReport(NamedTuple):
    """A loop that has reached the policy's `loop_alert`."""

    team: str
    session: str
    agent: str
    tool: str
    rounds: int
    stops_at: int
    """Number of rounds from which it is refused; 0: never."""


class ToolLoops:
    """Keeps counters only: each request contains its whole loop."""

    def __init__(self, report: Callable[[LoopReport], None] = lambda _: None) -> None:
        """`report` is called for each request of a loop that has reached `loop_alert`."""
        self._report = report
        self._counts = {"repeated": 0, "stopped": 0}

    def check(self, request: CompletionRequest, record: Record) -> None:
        """Raises ToolLoop if the request repeats the same failed calls too often."""
        turns = request.turns
        if not turns or not (turns[-1].results or turns[-1].role == "tool"):  # most requests, so it comes first
            return
        rules = record.tenant.policy.agents
        alert, stop = rules.loop_alert, rules.loop_stop
        if not (alert or stop):
            return
        found = repetition(request, max(alert, stop))
        if found is None:
            return
        if alert and found.rounds >= alert:
            self._counts["repeated"] += 1
            record.note("tool loop", tool=found.tool, rounds=found.rounds)
            self._report(LoopReport(record.tenant.team, record.session, record.agent, found.tool, found.rounds, stop))
        if stop and found.rounds >= stop:
            self._counts["stopped"] += 1
            raise ToolLoop(
                f"The tool {found.tool!r} was called {found.rounds} times in a row with the same arguments and the "
                "same error, so this run was stopped. Write what to do instead, or have agents.loop_stop in the team's "
                "policy raised."
            )

    def stats(self) -> dict[str, int | float | str]:
        return dict(self._counts)
