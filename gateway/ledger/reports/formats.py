"""Formats usage reports as JSON or CSV, and writes the notes below their tables. Money is exact decimal text."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gateway.domain.units import cents, pico_to_usd
from gateway.ledger.reports.report import COUNTS, Line, Report, Simulated

MONEY = {
    "cost_pico": "cost_usd",
    "saved_pico": "saved_usd",
    "idle_pico": "idle_usd",
    "undecided_pico": "undecided_usd",
    "decided_pico": "decided_usd",
    "checks_pico": "checks_usd",
}
ADEQUACY = "decided_adequacy"
"""Column about answers that were not given by the backend that routing chose. Its value is the mean adequacy that
routing expected, that is, the probability that the answer is as good as the reference's. Null (in CSV: empty) if there
are no such answers."""
NAMES = tuple(ADEQUACY if name == "decided_ppm" else MONEY.get(name, name) for name in COUNTS)


def dollars(pico: int) -> str:
    """US dollars as exact text without an exponent: `0.00000015`."""
    text = f"{pico_to_usd(pico):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def as_object(report: Report) -> dict[str, Any]:
    """The report as JSON values. Amounts are text in US dollars with up to twelve decimal places."""
    return {
        "since": _when(report.since),
        "until": _when(report.until),
        "by": report.by,
        "currency": "USD",
        "rows": [line_object(line, report.by) for line in report.rows],
        "total": line_object(report.total, ()),
        "simulated": [simulated_values(line) for line in report.simulated],
    }


def as_csv(report: Report) -> str:
    """The report as CSV with a header and one line per row. Totals and simulated usage are omitted, so that a
    spreadsheet can sum the columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*report.by, *NAMES])
    for line in report.rows:
        writer.writerow([*map(cell, line.group), *("" if value is None else value for value in figures(line))])
    return out.getvalue()


def notes(report: Report) -> list[str]:
    """The notes below the table. They say which costs besides clients' requests the figures include, and which costs
    are missing."""
    found = []
    if count := report.total.checks:
        found.append(
            f"Of these costs, {cents(report.total.checks_pico)} USD are for background checks: {count:,} attempts."
        )
    if count := report.total.unpriced:
        found.append(f"Attempts with an unknown or incomplete price, so that these figures are too low: {count:,}.")
    if count := report.total.estimated:
        found.append(f"Attempts whose tokens the gateway counted itself: {count:,}.")
    if looked_on := report.total.decided:
        total = report.total
        less = total.undecided_pico - total.decided_pico
        share = f" ({less / total.undecided_pico:.0%})" if total.undecided_pico else ""
        found.append(
            f"Routing did not choose for {looked_on:,} answers: they cost {cents(total.undecided_pico)} USD, and would "
            f"have cost {cents(total.decided_pico)} USD as decided, {_less(less)}{share}, at an expected adequacy of "
            f"{total.decided_ppm / looked_on / 1e6:.3f}."
        )
    for line in report.simulated:
        tokens = f"{line.requests:,} requests, {line.input_tokens:,} + {line.output_tokens:,} tokens"
        would = f"; hypothetical, priced like {line.like}: {cents(line.hypothetical_pico)} USD" if line.like else ""
        found.append(f"Simulated, in no total: {line.model} ({line.tier}), {tokens}{would}.")
    return found


def _less(pico: int) -> str:
    return f"{cents(pico)} USD less" if pico >= 0 else f"{cents(-pico)} USD more"


def cents_of(usd: str | float | Decimal) -> str:
    """Format an amount in US dollars for display. `cents` does the same for an amount in pico-dollars."""
    return cents(int(Decimal(usd) * 10**12))


def line_object(line: Line, by: tuple[str, ...]) -> dict[str, Any]:
    """The values of one line as JSON values."""
    return {**dict(zip(by, line.group, strict=True)), **dict(zip(NAMES, figures(line), strict=True))}


def figures(line: Line) -> list[int | float | str | None]:
    """The values of a line for the columns `NAMES`."""
    return [_figure(line, name) for name in COUNTS]


def _figure(line: Line, name: str) -> int | float | str | None:
    if name == "decided_ppm":
        return round(line.decided_ppm / line.decided / 1e6, 4) if line.decided else None
    value: int = getattr(line, name)
    return dollars(value) if name in MONEY else value


def simulated_values(line: Simulated) -> dict[str, Any]:
    """The values of a line of simulated usage as JSON values. Money is exact decimal text in USD."""
    return {
        "model": line.model,
        "tier": line.tier,
        "requests": line.requests,
        "input_tokens": line.input_tokens,
        "output_tokens": line.output_tokens,
        "hypothetical_like": line.like or None,
        "hypothetical_usd": None if line.hypothetical_pico is None else dollars(line.hypothetical_pico),
    }


def cell(value: str) -> str:
    """Make a text safe for a CSV cell. Clients choose the text, and a spreadsheet could read it as a formula. In this
    case the result begins with an apostrophe."""
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _when(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
