"""Reports an agent that repeats the same failing tool calls, and refuses its requests after further repetitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.dialects.tool_loops import repetition
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.errors import ToolLoop


class LoopReport(NamedTuple):
    """Repeated tool calls whose number has reached `loop_alert` of the policy. `rounds`: number of repetitions."""

    team: str
    session: str
    agent: str
    tool: str
    rounds: int
    stops_at: int
    """Number of rounds from which on requests are refused; 0: never."""


class ToolLoops:
    """Finds repeated tool calls. Nothing is stored between requests except counters, because each request contains all
    earlier calls of its conversation."""

    def __init__(self, report: Callable[[LoopReport], None] = lambda _: None) -> None:
        """`report`: called for each request whose number of repeated calls has reached `loop_alert` of the policy."""
        self._report = report
        self._counts = {"repeated": 0, "stopped": 0}

    def check(self, request: CompletionRequest, record: Record) -> None:
        """Report repeated failing tool calls in the request. Raises ToolLoop if there are too many of them."""
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
