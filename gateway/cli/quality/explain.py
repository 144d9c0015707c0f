"""`thriftgate explain`: shows how a prompt would be routed, without calling a backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
import orjson
from rich.markup import escape

from gateway.alerts.detect import measure
from gateway.alerts.detect.thresholds import BudgetWindow
from gateway.backends.fleet import Fleet
from gateway.cli import tables
from gateway.cli.diagnosis.backends import known
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.cli.requests.explain_request import ID, flight_of
from gateway.cli.teams.default_policy import note_default_policy
from gateway.cli.zones import zones
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.dialects.openai_chat.dialect import parse
from gateway.domain.money.pacing import pressure
from gateway.domain.money.windows import window_bounds
from gateway.domain.policy import ModelRule, Organisation, Policy
from gateway.domain.record import new_request_id
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import Route
from gateway.domain.tenant import Key, Tenant
from gateway.domain.traffic import traffic_class
from gateway.domain.units import pico_to_usd
from gateway.errors import GatewayError
from gateway.learning.class_trials import StoredTrials
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.explanation import sentences
from gateway.ledger.reports.formats import cents_of
from gateway.ledger.store import class_trials
from gateway.policy.load import load_policies
from gateway.routing.counterfactual import changes_of
from gateway.routing.loading import followed, packaged
from gateway.routing.router import Router
from gateway.settings.gateway import Settings


@click.command()
@common
@click.argument("prompt", metavar="REQUEST_ID|PROMPT")
@click.option("--team", default="default", show_default=True, help="The team whose policy applies.")
@click.option("--model", default="auto", show_default=True, help="The model name that the app sends.")
@click.option("--max-tokens", type=click.IntRange(1), help="The request's max_tokens.")
def explain(context: Context, prompt: str, team: str, model: str, max_tokens: int | None) -> None:
    """Say why a request was answered as it was, or which decision PROMPT would get.

    REQUEST_ID is the header x-request-id of an answer (req_…). The explanation comes from the request's flight record,
    which is kept for an hour, or else from the ledger.

    For a PROMPT: difficulty, candidates, exclusions, adequacy (probability of an answer as good as the baseline's),
    cost, and what would change the decision. No backend is called. Health, load and backends' caches are not used: only
    a running gateway knows them.

    \b
    thriftgate explain req_0198c2a4b7d100112233445566778899
    thriftgate explain "How many days are in a week?" --team search
    """
    if prompt.startswith("req_") and not ID.fullmatch(prompt):
        raise click.UsageError(f"{prompt!r} is no request id; an id is req_ and 32 hexadecimal digits.")
    if ID.fullmatch(prompt):
        settings = context.of_running()
        flight = flight_of(settings, prompt)
        if flight is None:
            raise click.ClickException(
                f"The ledger has no request {prompt}. It is recorded about a second after the answer ends; requests "
                "that were refused before are in the access log."
            )
        context.print(flight, "\n".join(sentences(flight, zones(settings)(flight["team"]))))
        return
    try:
        settings = context.of_running()
        note_default_policy(context, settings, team)
        policy, epoch = load_policies(settings.policies, settings.config.ceilings).find(team)
        tenant = Tenant(Key("explain", team), policy, epoch, settings.config.closed_to(team))
        request = request_for(prompt, model, max_tokens)
        route, what_if = asyncio.run(_decide(settings, tenant, request, _pressures(settings, tenant)))
    except GatewayError as error:
        raise click.ClickException(error.message) from error
    kind = traffic_class(request, route.input_tokens)
    context.print({"class": kind, **_values(route, what_if)}, lambda: _show(route, what_if, kind))


async def _decide(
    settings: Settings, tenant: Tenant, request: CompletionRequest, pressures: Mapping[str, float]
) -> tuple[Route, list[str]]:
    """Decide the route of the prompt. Returns the decision, and sentences about what would change it."""
    catalogue = PriceBook.of(settings)
    found = await known(settings)
    fleet = Fleet([catalogue.complete(backend) for backend in found])
    plans = followed(settings.config.routing.artefact)
    trials = _trials(settings, tenant.policy)
    router = Router(packaged, catalogue, fleet, fleet.backends, pressures=pressures, plans=plans, trials=trials)
    estimate = Contexts(Counter()).estimate(request)

    def decide(policy: Policy) -> Route:
        return router.decide(request, replace(tenant, policy=policy), estimate)

    route = decide(tenant.policy)
    if route.what_if is not None:
        return route, list(route.what_if())
    return route, _by_strategy(decide, tenant.policy, request.model, route)


def _by_strategy(decide: Callable[[Policy], Route], policy: Policy, model: str, route: Route) -> list[str]:
    """Sentences about a change of the rule's quality. They name the nearest lower and the nearest higher quality that
    lead to another strategy. Empty if the route does not come from a fitted strategy."""
    rule = policy.rule(model)
    if not route.strategy or not isinstance(rule, ModelRule):
        return []

    def followed_at(quality: float) -> str:
        wanted = rule.model_copy(update={"quality": quality})
        found = decide(policy.model_copy(update={"models": {**policy.models, model: wanted}}))
        return found.strategy or found.backends[0].name

    return changes_of("quality", followed_at, rule.quality)


def _trials(settings: Settings, policy: Policy) -> StoredTrials:
    """The measured trials: for each traffic class, the share of requests that cheaper backends may serve. Empty if the
    policy compares no classes."""
    if not policy.trials.classes:
        return StoredTrials({})
    with open_database(settings) as database, database.read() as connection:
        return StoredTrials(class_trials.read(connection))


def _pressures(settings: Settings, tenant: Tenant) -> dict[str, float]:
    """The pressure on the team's budgets, as `{team: pressure}`. The pressure says how far the spend is ahead of an
    even spend, from 0 to 1; the highest value of all budgets counts.

    Computed from ledger rows only. Empty if the policy does not pace spend.
    """
    team, policy = tenant.team, tenant.policy
    if not policy.pacing.enabled:
        return {}
    above = settings.config.organisations.get(policy.organisation, Organisation()).budget
    now, found = time.time(), [0.0]
    with open_database(settings) as database, database.read() as connection:
        for budget in (*policy.budget, *above):
            if measure.shared(policy, budget):
                window = window_bounds(budget.window, budget.timezone, now)
                spent = measure.used(connection, team, policy, budget, window)
                limit = BudgetWindow(team, budget).limit
                found.append(pressure(spent, limit, window, now, policy.pacing.tolerance))
    return {team: max(found)}


def request_for(prompt: str, model: str = "auto", max_tokens: int | None = None) -> CompletionRequest:
    """The request that an application would send for `prompt`. It is parsed like the requests of applications."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    return parse(orjson.dumps(body), new_request_id(), Controls(), {})


def _values(route: Route, what_if: Sequence[str]) -> dict[str, Any]:
    return {
        "order": [backend.name for backend in route.backends],
        "reason": route.reason,
        "difficulty": route.grade.difficulty if route.grade else None,
        "abstained": bool(route.grade and route.grade.abstained),
        "reference": route.reference.name if route.reference else None,
        "strategy": route.strategy or None,
        "ceiling_usd": None if route.ceiling_pico is None else f"{pico_to_usd(route.ceiling_pico):f}",
        "escalate_to": route.escalate_to.name if route.escalate_to else None,
        "observed": route.observed.name if route.observed else None,
        "quality": route.quality,
        "pressure": route.pressure,
        "what_if": what_if,
        "input_tokens": route.input_tokens,
        "output_tokens": route.output_tokens,
        "considered": [
            {
                "backend": one.backend,
                "excluded": one.excluded or None,
                "adequacy": one.adequacy,
                "cost_usd": None if one.cost_pico is None else f"{pico_to_usd(one.cost_pico):f}",
            }
            for one in route.considered
        ],
    }


def _show(route: Route, what_if: Sequence[str], kind: str) -> None:
    console = tables.console(highlight=False)
    values = _values(route, what_if)
    console.print(f"[bold]{escape(values['order'][0])}[/] serves: {escape(route.reason)}", markup=True)
    console.print(f"class {kind}")
    if route.grade is not None:
        note = " (outside the grader's domain)" if route.grade.abstained else ""
        console.print(f"difficulty {route.grade.difficulty:.3f}{note}")
    if route.pressure:
        console.print(f"spend is ahead of plan (pressure {route.pressure:.0%}): quality {route.quality:.1%} is enough")
    if len(route.backends) > 1:
        console.print(f"if it fails: {', then '.join(values['order'][1:])}")
    if route.escalate_to is not None:
        console.print(f"if it is unsure (below {route.escalate_below:.0%}): {route.escalate_to.name}")
    if route.above:
        ceiling = "by its tier" if values["ceiling_usd"] is None else f"{values['ceiling_usd']} USD"
        console.print(f"only if all else fails, above the ceiling ({ceiling}): {', '.join(sorted(route.above))}")
    table = tables.Table(
        "candidate", *tables.numbers("adequacy", "expected cost USD"), *tables.prose("excluded because")
    )
    for one in values["considered"]:
        adequacy = "–" if one["adequacy"] is None else f"{one['adequacy']:.3f}"
        cost = "unpriced" if one["cost_usd"] is None else cents_of(one["cost_usd"])
        table.add_row(one["backend"], adequacy, cost, one["excluded"] or "")
    if values["considered"]:
        console.print(table)
    for sentence in what_if:
        console.print(f"· {sentence}")
