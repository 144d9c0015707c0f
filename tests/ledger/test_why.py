"""The reasons of a request, from its ledger rows alone."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.ledger.reports.why import why
from gateway.ledger.rows import Row
from tests.dashboard.samples import USD
from tests.dashboard.samples import row as values

PRICES = "input=3000000 output=15000000 cached_input=300000"
ID = "req_one"


def row(**facts: Any) -> Row:
    return Row(**values(**{"request_id": ID, "difficulty": 0.82, **facts}))


WEAK = row(backend="small", model="little", outcome="escalated", cost_pico=2 * USD)
BROKEN = row(backend="small", outcome="failed", error="backend_timeout", cost_pico=0)
SECOND = row(attempt=2)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(model_asked="large")], "The client named large."),
        ([row(model_asked="big")], "The client named big."),
        ([row()], "The gateway chose large for auto: a prompt with difficulty 0.82 of 1."),
        ([row(traffic_class="en/long/opening")], "a prompt of the kind en/long/opening with difficulty 0.82 of 1."),
        ([row(difficulty=None)], "The policy's rule for auto led to large: the prompt was not graded."),
        ([row(decided="small,large")], "Routing had chosen small, but the policy only observes"),
        (
            [row(model_asked="tiny", above_ceiling=True)],
            "large costs more than tiny, but no cheaper backend could serve.",
        ),
        ([WEAK, SECOND], "The answer of small was too weak, so large was asked as well. It cost $2.00."),
        ([BROKEN, SECOND], "small failed (backend_timeout), so another call was made."),
        ([row(), row(attempt=2, kind="hedge")], "The first call was slow, so a second backend was asked"),
        ([row(trimmed_tokens=6000)], "6,000 tokens of context were left out before the call."),
        ([row(), row(attempt=2, kind="shadow", cost_pico=USD // 4)], "$0.25 of the cost is for background checks."),
        (
            [row(input_tokens=100_000, output_tokens=2_000, prices=PRICES, cost_pico=330_000_000_000)],
            "91% of the cost is for 100,000 tokens of input at $3.00 per million.",
        ),
        (
            [row(input_tokens=100, cached_tokens=900_000, output_tokens=10, prices=PRICES, cost_pico=270_450_000_000)],
            "100% of the cost is for 900,000 tokens of input read from the prompt cache at $0.30 per million.",
        ),
        ([row(attempt=0, cache="semantic")], "question with the same meaning, so no backend was called."),
    ],
)
def test_the_ledger_says_why(rows: list[Row], expected: str) -> None:
    assert expected in " ".join(why(rows))


def test_nothing_is_said_that_the_rows_do_not_show() -> None:
    assert why([row(difficulty=None, prices="")]) == [
        "The policy's rule for auto led to large: the prompt was not graded."
    ]
    assert why([row(model_asked="large", prices="other=1", cost_pico=USD)]) == ["The client named large."]
    assert why([row(attempt=0, kind="idle", cache="off")]) == []
