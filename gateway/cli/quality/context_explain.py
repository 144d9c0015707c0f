"""`thriftgate context explain`: shows what the gateway would leave out of a request, and why."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli import tables
from gateway.cli.options import Context, common
from gateway.cli.quality.context_bill import provider_backend
from gateway.context.count import Counter
from gateway.context.cuts.session import Weighed
from gateway.context.plan import Contexts
from gateway.context.strategies import old_turns
from gateway.context.strategies.load_out import unused
from gateway.dialects.clients import DIALECTS
from gateway.domain.backend import Backend
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.record import new_request_id
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.domain.tenant import Key, Tenant
from gateway.errors import GatewayError
from gateway.routing.affinity.sessions import prefix_of

_ANTHROPIC = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
"""Types of blocks that only Anthropic's messages have."""


def read_request(file: Path) -> CompletionRequest:
    """Read a request in OpenAI's chat dialect or in Anthropic's messages dialect; `-` means standard input. Raises
    ClickException."""
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        body = orjson.loads(raw)
        dialect: DialectName = "anthropic_messages" if type(body) is dict and _is_anthropics(body) else "openai_chat"
        return DIALECTS[dialect].parse(raw, new_request_id(), Controls(), {})
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise click.ClickException(f"{file}: is not JSON: {error}") from error
    except GatewayError as error:
        raise click.ClickException(error.message) from error


def _is_anthropics(body: dict[str, Any]) -> bool:
    messages = body.get("messages")
    contents = [each.get("content") for each in messages if type(each) is dict] if type(messages) is list else []
    blocks = [block for content in contents if type(content) is list for block in content if type(block) is dict]
    return (
        "system" in body
        or any(block.get("type") in _ANTHROPIC for block in blocks)
        or "claude" in str(body.get("model", "")).lower()
    )


@click.command()
@common
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--model", help="The provider's model that would be called; default: the request's.")
def explain(options: Context, file: Path, model: str | None) -> None:
    """Show what old outputs a request would lose, and why.

    The request is treated as one of a session that this gateway has not served before. No provider is called.

    FILE: the JSON body of a chat completion or of Anthropic's messages; - reads it from standard input.

    \b
    thriftgate context explain request.json --model claude-sonnet-4-5
    """
    request = read_request(file)
    contexts, backend = Contexts(Counter(), weighs_all=True), provider_backend(model or request.model)
    tenant = Tenant(Key("explain", "explain"), Policy(team="explain", context=ContextPolicy()))
    plan = asyncio.run(contexts.plan_for(request, tenant, backend, prefix_of(request, "explain")))
    values = _values(request, plan, contexts.weighed()) | {"old_turns": _old_turns(request, tenant, backend, plan)}
    options.print(values, lambda: _show(request, plan, values))


def _old_turns(request: CompletionRequest, tenant: Tenant, backend: Backend, plan: ContextPlan) -> dict[str, Any]:
    """The old texts that the gateway could replace by notes after a pause in the session (`context.old_turns`)."""
    if not old_turns.may_replace(request, tenant, backend):
        return {"messages": [], "tokens": 0, "why": "No notes: the history may not change, because of its thinking."}
    drafted = old_turns.draft(request, plan.replace, (), answers=True)
    if drafted is None:
        return {"messages": [], "tokens": 0, "why": "No notes: too few old outputs and answers."}
    messages = sorted(request.turns[place].index for place in drafted.places)
    why = (
        f"Notes with at most {drafted.most_output} tokens could replace {len(messages)} old outputs and answers with "
        f"{drafted.tokens} tokens after a pause (context.old_turns)."
    )
    return {"messages": messages, "tokens": drafted.tokens, "why": why}


def _values(request: CompletionRequest, plan: ContextPlan, weighed: Weighed | None) -> dict[str, Any]:
    marks = plan.marks
    return {
        "tokens_before": plan.tokens_before,
        "tokens_after": plan.tokens_after,
        "left_out": sorted(plan.replace.keys() - _quoting(request, plan)),
        "with_quotation": sorted(_quoting(request, plan)),
        "without_thinking": sorted(plan.no_thinking),
        "marks": None if marks is None else {"newest": marks.newest, "tools_and_system": marks.fixed},
        "unused_tools": unused(request),
        "why": _why(request, weighed),
    }


def _quoting(request: CompletionRequest, plan: ContextPlan) -> set[int]:
    """The indexes of the messages to which the gateway adds quotes. Each of these messages contains a user's question,
    and the quotes come from outputs that are left out."""
    return {turn.index for turn in request.turns if plan.replace.get(turn.index, "").startswith(f"{turn.text}\n")}


def _why(request: CompletionRequest, weighed: Weighed | None) -> str:
    if weighed is None:
        return "The session is too short, or its history may not change: it has signed thinking or no tool outputs."
    if not weighed.outputs:
        return "No tool output is old enough and not needed any more."
    figures = (
        f"{weighed.outputs} outputs with {weighed.saved} tokens may go; the cut costs {round(weighed.cost)} tokens of "
        f"plain input, and {round(weighed.gain)} are expected to be saved later"
    )
    return f"Left out: {figures}." if weighed.pays else f"A further cut would not pay: {figures}."


def _show(request: CompletionRequest, plan: ContextPlan, values: dict[str, Any]) -> None:
    table = tables.Table(
        "#",
        "role",
        *tables.prose("result", "begins with"),
        title=f"{plan.tokens_before} → {plan.tokens_after} tokens",
    )
    quoting = _quoting(request, plan)
    for turn in request.turns:
        what = "left out" if turn.index in plan.replace and turn.index not in quoting else "kept"
        what += ", with a quotation" if turn.index in quoting else ""
        what += ", without thinking" if turn.index in plan.no_thinking else ""
        table.add_row(str(turn.index), turn.role, what, turn.text[:60].replace("\n", " "))
    console = tables.console(highlight=False)
    console.print(table)
    console.print(values["why"])
    console.print(values["old_turns"]["why"])
    if tools := values["unused_tools"]:
        console.print(
            f"Tools that were not used, with {sum(tools.values())} tokens of definitions (context.unused_tools): "
            + ", ".join(tools)
        )
