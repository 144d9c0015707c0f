"""What a call may cost at worst is held for, in whatever words its client asks for more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.request import CompletionRequest
from gateway.errors import BadRequest, BudgetExhausted
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, backend, open_gateway, tenant
from tests.fakes.provider import Provider, Reply
from tests.money.reporting import request_for

LONG = "word " * 10_000
"""Some 10,000 tokens, which cost 0.01 USD to read and 0.05 USD to write into a cache."""
POOR: dict[str, Any] = {"cache": {"enabled": False}, "budget": {"limit_usd": "0.03", "window": "day"}}
SHORT: dict[str, Any] = {"max_tokens": 20}
CHAT = "/v1/chat/completions"
OWN = ("max_completion_tokens", "max_tokens", "max_output_tokens")
FOREIGN = (
    *("n_predict", "num_predict", "max_new_tokens", "max_gen_len", "max_length", "max_tokens_to_sample"),
    *("min_tokens", "min_new_tokens", "min_length"),
)
HOLDERS = ("options", "parameters", "sampling_params", "generation_config", "extra_body")


def price(**written: int) -> PriceEntry:
    return PriceEntry(input=Decimal(1), output=Decimal(10), **{name: Decimal(usd) for name, usd in written.items()})


def more(provider: Provider) -> tuple[Backend, ...]:
    return (
        backend(provider, "hour", kind="anthropic", price=price(cache_write_1h=5), window_tokens=None),
        backend(provider, "keeps", price=price(cache_write_5m=5), window_tokens=None),
        backend(provider, "window", window_tokens=8000),
    )


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, more=more, window_tokens=None) as opened:
        yield opened


def message(part: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG, **part}]}]}


def escaped(request: CompletionRequest) -> CompletionRequest:
    request.raw = request.raw.replace(b"cache_control", b"cach\\u0065_control")
    return request


MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
ITEM: dict[str, Any] = {"type": "input_text", "text": LONG, "prompt_cache_breakpoint": {"mode": "explicit"}}
WRITES = {
    "of its own accord": lambda: request_for(
        CHAT, model="keeps", **SHORT, messages=[{"role": "user", "content": LONG}]
    ),
    "as asked, for an hour": lambda: request_for("/v1/messages", model="hour", **{**SHORT, **message(MARK)}),
    "as asked in other bytes": lambda: escaped(request_for("/v1/messages", model="hour", **{**SHORT, **message(MARK)})),
    "as asked in chat": lambda: request_for(CHAT, model="hour", **SHORT, **message(MARK)),
    "as asked in Responses": lambda: request_for(
        "/v1/responses", model="hour", max_output_tokens=20, input=[{"role": "user", "content": [ITEM]}]
    ),
}


@pytest.mark.parametrize("how", WRITES)
async def test_a_prompt_that_the_backend_may_write_into_its_cache_is_held_for_at_that_price(
    gateway: InProcessGateway, how: str
) -> None:
    with pytest.raises(BudgetExhausted):
        await gateway.read(WRITES[how](), tenant(**POOR))
    assert not gateway.provider.exchanges


async def test_a_prompt_that_nobody_asked_anthropic_to_keep_is_held_for_as_input(gateway: InProcessGateway) -> None:
    await gateway.read(request_for("/v1/messages", model="hour", **{**SHORT, **message({})}), tenant(**POOR))
    assert len(gateway.provider.exchanges) == 1


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"max_tokens": 9000, "max_completion_tokens": 10}),
        (CHAT, {"max_tokens": 10, "max_completion_tokens": 9000}),
        (CHAT, {"max_tokens": 10, "n_predict": 9000}),
        (CHAT, {"max_tokens": 10, "n_predict": -1}),
        (CHAT, {"n_predict": 10}),
        (CHAT, {"max_tokens": 1500, "best_of": 4}),
        (CHAT, {"max_tokens": 1500, "n_cmpl": 4}),
        ("/v1/completions", {"max_tokens": 10, "n_predict": 9000}),
        ("/v1/completions", {"max_tokens": 1500, "n_cmpl": 4}),
        ("/v1/completions", {"max_completion_tokens": 10}),
        *((CHAT, {"max_tokens": 10, name: 9000}) for name in FOREIGN),
        *((CHAT, {"max_tokens": 10, name: -1}) for name in FOREIGN if not name.startswith("min")),
        *((CHAT, {"max_tokens": 10, name: "9000"}) for name in FOREIGN),
        *((CHAT, {"max_tokens": 10, name: {"num_predict": 9000}}) for name in HOLDERS),
        ("/v1/completions", {"max_tokens": 10, "options": {"num_predict": 9000}}),
        ("/v1/messages", {"model": "hour", "max_tokens": 10, "options": {"num_predict": 9000}}),
        ("/v1/messages", {"model": "hour", "max_tokens": 10, "n_predict": -1}),
        ("/v1/responses", {"max_output_tokens": 10, "n_predict": 9000}),
        ("/v1/responses", {"max_output_tokens": 10, "max_tokens": 9000}),
        ("/v1/responses", {"max_output_tokens": 1500, "n": 4}),
        (CHAT, {"max_tokens": 1500, "num_beams": 4}),
        (CHAT, {"max_tokens": 1500, "use_beam_search": True, "n": 4}),
        (CHAT, {"max_tokens": 1500, "options": {"n": 4}}),
    ],
    ids=str,
)
async def test_whichever_limit_a_server_obeys_its_answers_cost_no_more_than_is_left(
    gateway: InProcessGateway, path: str, fields: dict[str, Any]
) -> None:
    gateway.provider.script(Reply(tokens=5))
    await gateway.read(request_for(path, **fields), tenant(**POOR))
    sent = orjson.loads(gateway.provider.exchanges[0].body)
    held = [sent, *(sent[name] for name in HOLDERS if name in sent)]
    limits = [fields[name] for fields in held for name in (*OWN, *FOREIGN) if name in fields]
    answers = max(fields.get(name, 1) for fields in held for name in ("n", "best_of", "n_cmpl", "num_beams"))
    assert 10 <= max(limits) * answers <= 3000
    assert min(limits) >= 0
    told = [sent[name] for name in OWN if name in sent]
    assert not told or min(told) > 0


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses", "/v1/messages"])
async def test_where_all_of_it_is_paid_for_limits_of_any_name_go_out_as_they_came(
    gateway: InProcessGateway, path: str
) -> None:
    own = {"max_output_tokens": 10} if path == "/v1/responses" else {"max_tokens": 10}
    given = {**own, "n_predict": -1, "min_tokens": 9000, "options": {"num_predict": 9000, "n": 2}}
    request = request_for(path, **given, **({"model": "hour"} if path == "/v1/messages" else {}))
    await gateway.read(request, tenant(cache={"enabled": False}, budget={"limit_usd": "500", "window": "day"}))
    sent = gateway.provider.last.json
    assert {name: sent[name] for name in given} == given


@pytest.mark.parametrize(
    "given", [{"num_beams": 1000}, {"options": {"n": "4"}}, {"extra_body": {"best_of": 0}}], ids=str
)
async def test_a_number_of_answers_that_nobody_can_hold_for_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        request_for(CHAT, **given)


async def test_a_whole_answer_within_the_larger_limit_is_paid_for_before_it_is_asked_for(
    gateway: InProcessGateway,
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with pytest.raises(BudgetExhausted):
        await gateway.read(request_for(CHAT, max_tokens=9000, max_completion_tokens=10, tools=[tool]), tenant(**POOR))
    assert not gateway.provider.exchanges


SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": LONG}}}
BESIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "a tool": (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "description": LONG}}]}),
    "a schema in chat": (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}),
    "a schema in Responses": ("/v1/responses", {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
    "a schema in messages": (
        "/v1/messages",
        {"model": "hour", "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    "a prediction": (CHAT, {"prediction": {"type": "content", "content": LONG}}),
    "documents": (CHAT, {"documents": [{"text": LONG}]}),
}


@pytest.mark.parametrize("what", BESIDE)
async def test_what_a_model_is_told_beside_the_conversation_is_held_for(gateway: InProcessGateway, what: str) -> None:
    path, fields = BESIDE[what]
    limit = {"max_output_tokens": 20} if path == "/v1/responses" else SHORT
    poor = {**POOR, "budget": {"limit_usd": "0.005", "window": "day"}}
    with pytest.raises(BudgetExhausted):
        await gateway.read(request_for(path, **{**limit, **fields}), tenant(**poor))
    assert not gateway.provider.exchanges


async def test_an_answer_that_fits_because_the_backend_counts_less_input_is_paid_for(
    gateway: InProcessGateway,
) -> None:
    """The gateway counts 6,000 tokens of a window of 8,000. If the backend counts 4,800, an answer of 3,200 fits, which
    the budget does not pay for."""
    poor = {**POOR, "budget": {"limit_usd": "0.03", "window": "day"}}
    gateway.provider.script(Reply(tokens=5))
    said = [{"role": "user", "content": "word " * 6000}]
    await gateway.read(request_for(CHAT, model="window", stream=False, messages=said), tenant(**poor))
    assert gateway.record.attempts[0].input_tokens >= 6000
    assert orjson.loads(gateway.provider.exchanges[0].body)["max_tokens"] <= (30_000 - 4800) / 10
