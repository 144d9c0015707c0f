"""Comparing three accounts of one run: what clients received, what the provider sent, what the ledger says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loadtests.chaos_clients import Received
from loadtests.chaos_provider import INPUT_TOKENS, Call

Prices = Mapping[str, tuple[int, int]]
"""Backend → USD per million tokens of input and of output."""
_SHOWN = 20
_ENDING_TOKENS = 160
"""Where a worker was killed between the end of a stream and its row, the two events that end the stream (finish reason,
usage) are taken for text of at most this many tokens: `FIRST_FRAME_BYTES` each, four bytes a token."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    id: str
    session: str
    attempt: int
    backend: str
    outcome: str
    input_tokens: int
    output_tokens: int
    cost_pico: int | None


@dataclass(slots=True)
class Report:
    """`wrong` must be empty; everything else describes the run."""

    answers: Counter[str] = field(default_factory=Counter)
    """What became of requests, by what their clients saw."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Status and code of those that were refused."""
    rows: Counter[str] = field(default_factory=Counter)
    """Ledger rows by how their attempt ended."""
    ends: Counter[str] = field(default_factory=Counter)
    """Ledger rows by what the provider did."""
    calls: int = 0
    never_called: int = 0
    """Rows of attempts whose worker died, or whose client left, between the journal's line and the call."""
    wrong: Counter[str] = field(default_factory=Counter)
    """By what is wrong."""
    difference_pico: int = 0
    """Of answers whose end reached the client: sum of what each is off."""
    examples: list[str] = field(default_factory=list)

    def blame(self, what: str, example: object) -> None:
        self.wrong[what] += 1
        if len(self.examples) < _SHOWN:
            self.examples.append(f"{what}: {example}")


def reconcile(received: Iterable[Received], calls: Iterable[Call], rows: Iterable[LedgerRow], prices: Prices) -> Report:
    """Every call has one row, every row its call, and each says what the other says."""
    report = Report()
    clients = {f"ask-{each.number}": each for each in received}
    called: dict[str, Call] = {}
    for call in calls:
        report.calls += 1
        if call.id in called:
            report.blame("two calls of one attempt", call)
        called[call.id] = call
    booked: dict[str, list[LedgerRow]] = defaultdict(list)
    for row in rows:
        booked[row.session].append(row)
        report.rows[row.outcome] += 1
        _compare(report, row, called.get(row.id), prices)
        report.ends[_end(row, called.get(row.id))] += 1
    known = {row.id for each in booked.values() for row in each}
    for id, call in called.items():
        if id not in known:
            report.blame("no row", call)
    for session, client in clients.items():
        _account(report, client, sorted(booked.get(session, ()), key=lambda row: row.attempt), called, prices)
    for session in booked.keys() - clients.keys():
        report.blame("a row of no request", booked[session])
    return report


def _compare(report: Report, row: LedgerRow, call: Call | None, prices: Prices) -> None:
    """One row with the call that it is about."""
    if call is None:
        report.never_called += 1
        # Nobody knows of a killed worker's call whether it was heard: what it may have cost by then is booked.
        if row.outcome == "ok" or (row.output_tokens and row.outcome != "interrupted"):
            report.blame("tokens that nobody sent", row)
        return
    if row.backend != call.backend:
        report.blame("the wrong backend", (row, call))
    if row.outcome == "ok":
        if not call.whole or row.output_tokens != call.sent or row.input_tokens != INPUT_TOKENS:
            report.blame("a whole answer's tokens differ", (row, call))
    elif row.outcome == "interrupted":
        # What a plain answer had come to is estimated by time, what a stream had come to by the bytes that arrived.
        if call.stream and row.output_tokens > call.sent + (_ENDING_TOKENS if call.whole else 0):
            report.blame("more tokens than the provider sent", (row, call))
    elif row.outcome != "failed":
        report.blame("an outcome that cannot be", row)
    elif call.status == 200 or row.output_tokens or row.cost_pico:
        report.blame("a failed attempt that cost", (row, call))
    if row.cost_pico != _cost(row.input_tokens, row.output_tokens, prices[row.backend]):
        report.blame("tokens and cost disagree", row)


def _account(
    report: Report, client: Received, rows: list[LedgerRow], called: Mapping[str, Call], prices: Prices
) -> None:
    """One request with the rows of its attempts."""
    report.answers[_seen(client)] += 1
    if client.hung:
        report.blame("hung", client)
    if client.status >= 400:
        report.refusals[f"{client.status} {client.code}".strip()] += 1
    if not client.tokens and not client.whole:
        return
    # Only the last attempt can have answered: after its first byte nothing is tried again.
    row = rows[-1] if rows else None
    call = called.get(row.id) if row else None
    if row is None or call is None:
        report.blame("an answer without a row", client)
    elif client.whole:
        difference = abs((row.cost_pico or 0) - _cost(INPUT_TOKENS, call.sent, prices[call.backend]))
        report.difference_pico += difference
        if row.outcome != "ok" or difference or client.tokens != call.sent:
            report.blame("an answer that was read to its end differs", (client, row, call))
    elif row.output_tokens < client.tokens:
        report.blame("fewer tokens than the client received", (client, row, call))


def _end(row: LedgerRow, call: Call | None) -> str:
    if call is None:
        did = "was not called"
    elif call.whole:
        did = "answered in full"
    elif call.status not in (0, 200):
        did = f"said {call.status}"
    elif not call.status:
        did = "said nothing"
    else:
        did = "was left" if call.hung_up else "broke off"
    return f"{row.outcome}: provider {did}"


def _seen(client: Received) -> str:
    if client.hung:
        return "hung"
    if client.whole:
        return "whole"
    if client.left:
        return "left by the client"
    if client.status >= 400:
        return "refused"
    return "cut" if client.status else "lost before a byte"


def _cost(input_tokens: int, output_tokens: int, price: tuple[int, int]) -> int:
    """Pico-dollars; a price is USD per million tokens."""
    return (input_tokens * price[0] + output_tokens * price[1]) * 10**6
