"""`thriftgate context`: counts a conversation's tokens and shows what trimming would drop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from gateway.cli import tables
from gateway.cli.options import Context, common
from gateway.cli.quality.context_bill import bill
from gateway.cli.quality.context_doctor import doctor
from gateway.cli.quality.context_explain import explain, read_request
from gateway.cli.quality.context_replay import replay
from gateway.cli.quality.context_report import report
from gateway.context.count import Counter, encoding_of
from gateway.context.plan import Contexts
from gateway.domain.backend import Backend
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan
from gateway.domain.tenant import Key, Tenant
from gateway.errors import GatewayError


@click.group()
def context() -> None:
    """Count a conversation's tokens; show what trimming would drop."""


context.add_command(bill)
context.add_command(doctor)
context.add_command(explain)
context.add_command(replay)
context.add_command(report)


@context.command()
@common
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--max-tokens", type=click.IntRange(1), required=True, help="Most input tokens to keep.")
@click.option("--model", default="gpt-4o", show_default=True, help="Model whose tokenizer is used.")
def trim(options: Context, file: Path, max_tokens: int, model: str) -> None:
    """Show which turns of a request would be dropped or shortened.

    FILE: the JSON body of a chat completion or of Anthropic's messages; - reads it from standard input.

    \b
    thriftgate context trim request.json --max-tokens 4000
    """
    try:
        request = read_request(file)
        plan = asyncio.run(_plan(request, max_tokens, model))
    except GatewayError as error:
        raise click.ClickException(error.message) from error
    options.print(_values(plan), lambda: _show(request, plan))


async def _plan(request: CompletionRequest, max_tokens: int, model: str) -> ContextPlan:
    policy = Policy(team="trim", context=ContextPolicy(max_input_tokens=max_tokens))
    backend = Backend(name="trim", kind="simulated", model=model)
    return await Contexts(Counter()).plan_for(request, Tenant(Key("trim", "trim"), policy), backend)


def _values(plan: ContextPlan) -> dict[str, Any]:
    return {
        "tokens_before": plan.tokens_before,
        "tokens_after": plan.tokens_after,
        "dropped": sorted(plan.drop),
        "shortened": sorted(plan.replace),
    }


def _show(request: CompletionRequest, plan: ContextPlan) -> None:
    table = tables.Table(
        "#",
        "role",
        "result",
        *tables.prose("begins with"),
        title=f"{plan.tokens_before} → {plan.tokens_after} tokens",
    )
    for turn in request.turns:
        what = "dropped" if turn.index in plan.drop else "shortened" if turn.index in plan.replace else "kept"
        table.add_row(str(turn.index), turn.role, what, turn.text[:60].replace("\n", " "))
    tables.console(highlight=False).print(table)


@context.command()
@common
@click.argument("text")
@click.option("--model", default="gpt-4o", show_default=True, help="Model whose tokenizer is used.")
def count(options: Context, text: str, model: str) -> None:
    """Count the tokens of TEXT exactly, and by the fast estimate.

    \b
    thriftgate context count "How many days are in a week?"
    """
    counter = Counter()
    exact, estimate = counter.count(text, encoding_of(model)), counter.estimate(text)
    options.print({"tokens": exact, "estimate": estimate}, f"{exact} tokens (estimated {estimate})")
