"""Makes background calls for comparisons. Before a call, its maximum cost is held on the limit for comparisons and on
the team's budgets. The ledger records the call as `shadow`."""

from __future__ import annotations

import asyncio

from gateway.domain.answer import Answer
from gateway.domain.protocols import PriceList
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Route
from gateway.learning.cost_hold import BackgroundHold
from gateway.learning.spend_cap import SpendCap
from gateway.pipeline import Pipeline

DEADLINE_S = 120.0


async def buy(
    pipeline: Pipeline,
    spend_cap: SpendCap,
    prices: PriceList,
    route: Route,
    request: CompletionRequest,
    record: Record,
    most_output: int,
) -> Answer:
    """Call the backends of `route` for a comparison. Returns the complete answer. `spend_cap`: the limit for the cost
    of all comparisons. `most_output`: maximum output tokens of the answer. Raises GatewayError (BudgetExhausted if the
    limit or a budget is reached) and SQLAlchemyError."""
    tenant = record.tenant
    hold = BackgroundHold(spend_cap, pipeline.budgets.hold(tenant, record, request), prices, tenant, most_output)
    try:
        return await pipeline.ask(route, request, record, hold, asyncio.get_running_loop().time() + DEADLINE_S)
    finally:
        await asyncio.shield(hold.settle(record.cost_pico or 0))
