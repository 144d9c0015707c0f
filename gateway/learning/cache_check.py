"""Checks hits of the semantic cache: requests a new answer to the same question, so that the cached answer can be
compared with it.
"""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.protocols import FreshAnswer, PriceList
from gateway.domain.record import Record, new_request_id
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted, GatewayError
from gateway.learning.background_call import buy
from gateway.learning.cost_hold import KIND
from gateway.learning.shadow.sample import plain, repeatable
from gateway.learning.spend_cap import SpendCap
from gateway.pipeline import Pipeline

log = logging.getLogger(__name__)

MOST_OUTPUT = 4096
"""Output tokens that are assumed for a request without an output limit."""


class FreshAnswers:
    """Implements `FreshAnswerSource` of domain/protocols.py. A request for a new answer is routed like any other
    request of the tenant, but its answer is not stored in the cache."""

    def __init__(self, pipeline: Pipeline, spend_cap: SpendCap, prices: PriceList) -> None:
        self._pipeline, self._spend_cap, self._prices = pipeline, spend_cap, prices
        self._counts = dict.fromkeys(("asked", "unpaid", "failed"), 0)

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        if not repeatable(request):
            return None
        asked, pipeline = plain(request), self._pipeline
        record = Record(new_request_id(), tenant, asked.model, asked.dialect, False, kind=KIND)
        record.tags.update(asked.controls.tags)
        self._counts["asked"] += 1
        try:
            route = await pipeline.route(asked, record)
            most = asked.max_output_tokens or MOST_OUTPUT
            answer = await buy(pipeline, self._spend_cap, self._prices, route, asked, record, most)
        except BudgetExhausted:
            self._counts["unpaid"] += 1
            return None
        except (GatewayError, SQLAlchemyError) as error:
            self._counts["failed"] += 1
            log.debug("a cached answer was not checked, because no new answer could be requested: %s", error)
            return None
        body = answer.completion() if answer.complete and answer.finish == "stop" else None
        return None if body is None else FreshAnswer(body, record.cost_pico)

    def stats(self) -> dict[str, int | float | str]:
        return {f"fresh_{name}": count for name, count in self._counts.items()}
