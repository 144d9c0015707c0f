from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.policy import DataPolicy
from gateway.domain.routing.route import ContextEstimate, Prefix
from gateway.errors import BadRequest, ContextTooLong, Forbidden, NoAdequateBackend
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.candidates import Candidate, Demand, against, examine, expected_cost, may_go_to, refusal
from tests.routing.conftest import HOSTED, LARGE, SMALL, Fleet, backend

PLAIN = Demand("openai_chat", frozenset(), ContextEstimate(1000, 1000), 200, None, DataPolicy())


def _excluded(demand: Demand, catalogue: PriceBook, down: set[str] | None = None) -> dict[str, tuple[str, str]]:
    found = examine([SMALL, LARGE, HOSTED], demand, catalogue, Fleet(down or set()))
    return {each.backend.name: (each.cause, each.excluded) for each in found}


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        ({}, ("", "", "")),
        ({"needs": frozenset({"tools"})}, ("capability", "", "")),
        ({"needs": frozenset({"tools", "vision"})}, ("capability", "capability", "")),
        ({"needs": frozenset({"json_schema"})}, ("capability", "capability", "capability")),
        ({"input": ContextEstimate(4000, 4000)}, ("window", "", "")),
        ({"input": ContextEstimate(3896, 3896)}, ("", "", "")),
        ({"input": ContextEstimate(3896, 3896), "output_most": 201}, ("window", "", "")),
        ({"input": ContextEstimate(90000, 100)}, ("", "", "")),  # trimming makes it fit
        ({"input": ContextEstimate(10**7, 10**7)}, ("window", "window", "")),  # an unknown window passes
        ({"data": DataPolicy(hosted="forbidden")}, ("", "", "data")),
        ({"data": DataPolicy(regions=("us",))}, ("data", "data", "")),
        ({"tier": "large"}, ("tier", "", "tier")),
        ({"input": ContextEstimate(10**7, 0)}, ("", "", "")),  # no one context: only the backend knows what fits
    ],
)
def test_a_backend_that_cannot_serve_is_excluded(
    change: dict[str, object], causes: tuple[str, ...], catalogue: PriceBook
) -> None:
    found = _excluded(replace(PLAIN, **change), catalogue)  # type: ignore[arg-type]
    assert tuple(found[name][0] for name in ("small", "large", "hosted")) == causes


@pytest.mark.parametrize(("kind", "cause"), [("openai", ""), ("local", ""), ("anthropic", "dialect"), ("litellm", "")])
def test_who_cannot_be_asked_for_vectors_is_excluded(kind: str, cause: str, catalogue: PriceBook) -> None:
    demand = replace(PLAIN, dialect="openai_embeddings")
    (found,) = examine([backend("one", "large", "1", kind=kind)], demand, catalogue, Fleet())
    assert found.cause == cause


def test_a_resting_backend_is_excluded_with_its_reason(catalogue: PriceBook) -> None:
    assert _excluded(PLAIN, catalogue, {"large"})["large"] == ("health", "resting after 5 failures")


def test_a_backend_without_a_region_is_outside_every_region(catalogue: PriceBook) -> None:
    nowhere = backend("nowhere", "large", "1")
    demand = replace(PLAIN, data=DataPolicy(regions=("eu",)))
    (found,) = examine([nowhere], demand, catalogue, Fleet())
    assert found.excluded == "no region is given for it; the policy allows eu"


def test_the_cost_counts_the_whole_input_and_the_expected_output(catalogue: PriceBook) -> None:
    assert expected_cost(LARGE, PLAIN, catalogue) == 1000 * 1_000_000 + 200 * 4_000_000
    short = backend("short", "large", "1", max_output_tokens=50)
    assert expected_cost(short, PLAIN, catalogue) == 1000 * 1_000_000 + 50 * 4_000_000
    assert expected_cost(backend("unpriced", "large"), PLAIN, catalogue) is None


class Warm:
    """A session of which every backend still has so many tokens."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def warm_tokens(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        return self.tokens


ANTHROPIC, ELSEWHERE = "https://api.anthropic.com/v1", "http://127.0.0.1:9/v1"
CACHING = PriceEntry(input=1, cached_input="0.1", cache_write_5m="1.25", output=4)
LONG = replace(PLAIN, input=ContextEstimate(9000, 9000), prefix=Prefix(b"s"))


@pytest.mark.parametrize(
    ("kind", "model", "base_url", "change", "writes"),
    [
        ("anthropic", "claude-sonnet-5", ANTHROPIC, {"may_mark": True}, True),
        ("anthropic", "claude-sonnet-5", ANTHROPIC, {}, False),
        ("anthropic", "claude-sonnet-5", ELSEWHERE, {"may_mark": True}, False),
        ("anthropic", "claude-sonnet-5", ELSEWHERE, {"marked": True}, True),
        ("openai", "gpt-5.6", ELSEWHERE, {}, True),
        ("openai", "gpt-5.4", ELSEWHERE, {"marked": True, "may_mark": True}, False),
        ("openai", "gpt-5.6", ELSEWHERE, {"input": ContextEstimate(1000, 1000)}, False),
        ("openai", "gpt-5.6", ELSEWHERE, {"prefix": None}, False),
    ],
)
def test_what_is_not_warm_costs_a_cache_write_where_the_backend_charges_for_it(
    kind: str, model: str, base_url: str, change: dict[str, object], writes: bool, catalogue: PriceBook
) -> None:
    caching = Backend(name="c", kind=kind, model=model, base_url=base_url, price=CACHING)  # type: ignore[arg-type]
    demand = replace(LONG, **change)  # type: ignore[arg-type]
    tokens = demand.input.tokens
    usd = 1_250_000 if writes else 1_000_000
    assert expected_cost(caching, demand, catalogue) == tokens * usd + 200 * 4_000_000
    if demand.prefix is not None:
        warm = expected_cost(caching, demand, catalogue, sessions=Warm(400))
        assert warm == (tokens - 400) * usd + 400 * 100_000 + 200 * 4_000_000


def test_only_the_window_in_the_way_is_the_clients_to_shorten() -> None:
    error = refusal([Candidate(SMALL, "5000 tokens are needed, its window holds 4096", "window")])
    assert isinstance(error, ContextTooLong)
    assert error.param == "messages"
    assert "4096" in error.message
    assert refusal([Candidate(SMALL, "too small", "window")], input_field="prompt").param == "prompt"


def test_the_window_of_forbidden_backends_does_not_matter() -> None:
    found = [Candidate(SMALL, "too small", "window"), Candidate(HOSTED, "the policy forbids hosted backends", "data")]
    assert isinstance(refusal(found), ContextTooLong)


def test_only_the_data_rule_in_the_way_is_forbidden() -> None:
    error = refusal([Candidate(HOSTED, "the policy forbids hosted backends", "data")])
    assert isinstance(error, Forbidden)
    assert "forbids hosted" in error.message


def test_several_reasons_are_all_told() -> None:
    found = [Candidate(SMALL, "lacks tools", "capability"), Candidate(LARGE, "resting", "health")]
    error = refusal(found, ["gone"])
    assert isinstance(error, NoAdequateBackend)
    for part in ("small (lacks tools)", "large (resting)", "gone (no backend of this name"):
        assert part in error.message
    assert error.retry_after_s == 1.0
    assert refusal(found[:1]).retry_after_s is None


def test_names_that_nobody_has_are_no_data_rule() -> None:
    assert isinstance(refusal([], ["gone"]), NoAdequateBackend)


def test_a_model_that_no_endpoint_of_this_kind_serves_is_the_clients_mistake(catalogue: PriceBook) -> None:
    """Not a 503, which SDKs would try again."""
    demand = replace(PLAIN, dialect="openai_embeddings")
    far = backend("far", "hosted", "1", kind="anthropic", base_url="https://example.com/v1")
    error = refusal(examine([far], demand, catalogue, Fleet()))
    assert isinstance(error, BadRequest)
    assert (error.status, error.param) == (400, "model")


@pytest.mark.parametrize(
    ("model", "regions", "allowed"),
    [
        ("anthropic.claude-v1:0", ("eu-central-1",), True),
        ("eu.anthropic.claude-v1:0", ("eu-central-1",), False),
        ("global.anthropic.claude-v1:0", ("eu-central-1",), False),
        ("eu.anthropic.claude-v1:0", ("eu-central-1", "eu"), True),
        ("arn:aws:bedrock:eu-central-1:1:inference-profile/global.anthropic.claude-v1:0", ("eu-central-1",), False),
    ],
)
def test_an_inference_profile_counts_as_its_group_of_regions(
    model: str, regions: tuple[str, ...], allowed: bool
) -> None:
    backend = Backend(name="aws", kind="bedrock", model=model, region="eu-central-1")
    data = DataPolicy(regions=regions)
    assert may_go_to(backend, data) == allowed
    assert against(backend, replace(PLAIN, data=data))[0] == ("" if allowed else "data")
