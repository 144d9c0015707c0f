"""A chaos run as people read it, and as scripts do."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadtests.chaos import Run

_WIDTH = 46


def summary(run: Run) -> dict[str, Any]:
    report = run.report
    return {
        "seed": run.options.seed,
        "options": asdict(run.options),
        "requests": len(run.received),
        "kinds": Counter(each.kind for each in run.received),
        "seconds": round(run.seconds, 1),
        "stop_s": round(run.stop_s, 1),
        "blows": _blows(run),
        "least_in_flight_at_a_blow": min((under_way for _, under_way in run.blows), default=0),
        "longest_request_s": round(max((each.seconds for each in run.received), default=0.0), 1),
        "connections_turned_away": run.turned_away,
        "answers": report.answers,
        "refusals": report.refusals,
        "provider_calls": report.calls,
        "ledger_rows": report.rows,
        "ends": dict(sorted(report.ends.items())),
        "rows_of_attempts_never_called": report.never_called,
        "usd_difference_of_whole_answers": report.difference_pico / 10**12,
        "wrong": report.wrong,
        "examples": report.examples,
        "passed": not report.wrong,
    }


def table(run: Run) -> str:
    lines = []
    for name, value in summary(run).items():
        if name in ("options", "examples", "passed"):
            continue
        title = name.replace("_", " ")
        if isinstance(value, dict):
            lines.append(title)
            lines += [f"  {key:<{_WIDTH - 2}}{count:>10}" for key, count in value.items()]
        else:
            lines.append(f"{title:<{_WIDTH}}{value:>10}")
    lines += [f"  {example}" for example in run.report.examples]
    lines.append("every attempt has one row, and it is right" if not run.report.wrong else "NOT AS IT MUST BE")
    return "\n".join(lines)


def _blows(run: Run) -> dict[str, int]:
    return dict(Counter(f"{blow.victim} {blow.deed}" for blow, _ in run.blows))
