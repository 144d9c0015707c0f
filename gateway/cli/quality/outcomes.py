"""`thriftgate outcomes`: measures outcomes of your own prompts, from which `router fit` makes a plan."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from errno import ENOSPC
from io import SEEK_END, FileIO
from os import strerror
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.backends.cascade.weak_signals import Reader
from gateway.cli import tables
from gateway.cli.echo import counted
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.cli.quality.asking import Caller, asking, each_of, read_prompts
from gateway.cli.simulation.call import LogError
from gateway.cli.simulation.reading import read_calls
from gateway.domain.backend import Backend
from gateway.domain.units import parse_usd, pico_to_usd, usd_to_pico
from gateway.errors import GatewayError
from gateway.learning.judges import Agreement, Judge, Structured
from gateway.learning.shadow.pairs import Prompt, Response, right
from gateway.ledger.store import samples as kept
from gateway.settings.gateway import Settings

_FILE = click.Path(path_type=Path)
_TEXT_ONLY = "contains tools, images or files, which a plan does not cover"


@dataclass(frozen=True, slots=True)
class Ask:
    """The settings of a run: which backends get which prompts. The first backend of `pool` is the baseline."""

    pool: tuple[str, ...]
    judge: str
    most_output: int
    concurrent: int
    out: Path


@dataclass(slots=True)
class Built:
    """The result of one run of `outcomes build`."""

    known: int = 0
    """Number of prompts that the file had already."""
    written: int = 0
    undecided: int = 0
    """Number of answers that the judge could not compare. They have no quality in the file."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Why prompts have no row → number of prompts."""
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)
    spent_pico: int = 0
    stopped: str = ""


@click.group()
def outcomes() -> None:
    """Measure how good backends' answers to your own prompts are."""


@outcomes.command(short_help="Ask a pool of backends, score the answers, and write outcomes.")
@common
@click.option("--prompts", type=_FILE, help="JSON lines {prompt | messages, answer?, id?}.")
@click.option("--log", type=_FILE, help="A log from which the prompts are taken: any log that `simulate` reads.")
@click.option(
    "--samples", is_flag=True, help="Take the prompts from the samples that --team keeps (data.store_samples)."
)
@click.option("--pool", required=True, help="Backends to ask, separated by commas. The first one is the baseline.")
@click.option("--out", type=_FILE, required=True, help="Outcomes file. If it exists, its prompts are not asked again.")
@click.option("--pool-out", type=_FILE, help="Also write the pool's prices, which `router fit` needs.")
@click.option("--max-usd", default="1", show_default=True, help="Most that all calls together may cost, in USD.")
@click.option("--sample", type=click.IntRange(1), help="Ask only this many prompts, chosen at random.")
@click.option("--seed", default=0, show_default=True, help="Seed of the sample.")
@click.option(
    "--judge",
    default=Agreement.name,
    show_default=True,
    help="agreement, exact, or the name of a backend, which compares the answers without their sources.",
)
@click.option("--max-tokens", type=click.IntRange(1), default=512, show_default=True, help="Most tokens of an answer.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="Sent with each prompt.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, help="Prompts at a time.")
@click.option("--team", default="default", show_default=True, help="The team that pays. Its data rule applies.")
def build(
    context: Context, prompts: Path | None, log: Path | None, samples: bool, pool: str, out: Path,
    pool_out: Path | None, max_usd: str, sample: int | None, seed: int, judge: str, max_tokens: int,
    temperature: float, concurrency: int, team: str,
) -> None:  # fmt: skip
    """Send prompts to every backend of a pool, score the answers, and write the outcomes that `router fit` reads.

    A prompt with a known `answer` is scored against this answer. Otherwise the baseline's answer counts as right, and
    the judge compares the others with it. Every call is real: it costs money and is on the ledger under --team (kind
    shadow). Calls stop at --max-usd; run the command again to go on.

    \b
    thriftgate outcomes build --prompts prompts.jsonl --pool large,small --out outcomes.jsonl --pool-out pool.json
    thriftgate outcomes build --samples --team search --pool large,small --out measured.jsonl
    thriftgate router fit --data outcomes.jsonl --pool pool.json --out plan.json
    """
    names = tuple(dict.fromkeys(name.strip() for name in pool.split(",") if name.strip()))
    if len(names) < 2:
        raise click.UsageError("--pool needs at least two backends, separated by commas.")
    if (prompts is not None) + (log is not None) + samples != 1:
        raise click.UsageError("give one of --prompts, --log and --samples.")
    settings = context.settings(keys=True)
    try:
        limit = usd_to_pico(parse_usd(max_usd))
        if samples:
            found = kept_prompts(settings, team, max_tokens, temperature)
        else:
            found = _prompts(prompts, log, max_tokens, temperature)
        asked = _sampled(found, sample, seed)
        ask = Ask(names, judge, max_tokens, concurrency, out)
        built = asyncio.run(measure(settings, asked, ask, limit, team))
        if pool_out is not None:
            pool_out.write_bytes(orjson.dumps(built.prices, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    except ValueError as error:
        raise click.UsageError(f"--max-usd {error}") from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or out}: {error.strerror}") from error
    except GatewayError as error:
        raise click.ClickException(error.message) from error
    spent = f"{pico_to_usd(built.spent_pico):f}"
    values = {
        "written": built.written,
        "known": built.known,
        "undecided": built.undecided,
        "skipped": dict(built.skipped),
        "spent_usd": spent,
        "stopped": built.stopped or None,
    }
    context.print(values, lambda: _show(built, out, spent, team))


def _prompts(prompts: Path | None, log: Path | None, max_tokens: int, temperature: float) -> list[Prompt]:
    if prompts is not None:
        return read_prompts(prompts, max_tokens, temperature)
    assert log is not None
    try:
        _, calls = read_calls(log)
    except LogError as error:
        raise click.ClickException(str(error)) from error
    found: dict[bytes, Prompt] = {}
    for call in calls:
        raw = call.body("any") if call.dialect == "openai_chat" and not call.hidden_tools else None
        if raw is None:
            continue
        body = orjson.loads(raw)
        asked = {name: body[name] for name in ("messages", "tools", "response_format") if name in body}
        # A log may have one prompt many times, and its ids need not be unique.
        found.setdefault(
            orjson.dumps(asked["messages"]),
            Prompt(call.id or str(len(found) + 1), {**asked, "max_tokens": max_tokens, "temperature": temperature}),
        )
    return list({prompt.id: prompt for prompt in found.values()}.values())


def kept_prompts(settings: Settings, team: str, max_tokens: int, temperature: float) -> list[Prompt]:
    """The prompts in the samples that the team keeps."""
    with open_database(settings, existing=True) as database, database.read() as connection:
        found = list(kept.read(connection, team, time.time()))
    limits = {"max_tokens": max_tokens, "temperature": temperature}
    return [Prompt(one.request_id, {**one.request, **limits}) for one in found]


def _sampled(prompts: list[Prompt], count: int | None, seed: int) -> list[Prompt]:
    if count is None or count >= len(prompts):
        return prompts
    return random.Random(seed).sample(prompts, count)  # noqa: S311 - a sample, no secret


async def measure(settings: Settings, prompts: Sequence[Prompt], ask: Ask, limit: int, team: str) -> Built:
    """Send prompts to the backends of the pool. Prompts that already have a row in `ask.out` are not sent again. Raises
    OSError, GatewayError, ClickException."""
    there = begun(ask.out)
    built = Built(sum(prompt.id in there for prompt in prompts))
    async with asking(settings, team, limit) as caller:
        pool = [caller.backend(name) for name in ask.pool]
        judge = Structured(caller.judge(ask.judge))
        built.prices = {backend.name: _per_million(caller, backend) for backend in pool}
        with ask.out.open("ab", buffering=0) as file:

            async def one(prompt: Prompt) -> None:
                if why := _outside(prompt):
                    built.skipped[why] += 1
                    return
                answers = await _answers(caller, prompt, pool, ask.most_output)
                if answers[0].error:
                    built.skipped[f"the baseline failed ({answers[0].error})"] += 1
                    return
                row = await _row(prompt, pool, answers, judge)
                append(file, orjson.dumps(row) + b"\n")
                built.written += 1
                built.undecided += sum(quality is None for quality in row["q"].values())

            left = [prompt for prompt in prompts if prompt.id not in there]
            built.stopped = await each_of(left, one, ask.concurrent, f"{len(pool)} backends")
        built.spent_pico = caller.settlement.spent
    return built


def append(file: FileIO, line: bytes) -> None:
    """Append a line to the file. If the disk is full, the part of the line that was written is removed again: it would
    make the next line unreadable. Raises OSError."""
    size = file.seek(0, SEEK_END)
    if file.write(line) != len(line):
        file.truncate(size)
        raise OSError(ENOSPC, strerror(ENOSPC))


def begun(out: Path) -> set[str]:
    """The ids of the prompts whose rows are in `out`. If the last line is incomplete, it is removed from the file."""
    try:
        data = out.read_bytes()
    except FileNotFoundError:
        return set()
    whole = data[: data.rfind(b"\n") + 1]
    try:
        ids = {str(orjson.loads(line)["id"]) for line in whole.splitlines() if line.strip()}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise click.ClickException(f"{out}: the file exists and has no outcomes; name another file.") from None
    if len(whole) != len(data):
        out.write_bytes(whole)
    return ids


def _outside(prompt: Prompt) -> str:
    """The reason why a plan cannot be used for the prompt; empty if it can be used."""
    request = prompt.request("any")
    return _TEXT_ONLY if request.needs & {"tools", "vision"} or any(turn.files for turn in request.turns) else ""


async def _answers(caller: Caller, prompt: Prompt, pool: Sequence[Backend], most_output: int) -> list[Response]:
    """The answers of all backends, in the order of `pool`. If one call cannot be paid, the other calls still run to
    their end and are recorded."""
    calls = (caller.pairs.response(prompt, backend, most_output) for backend in pool)
    found = await asyncio.gather(*calls, return_exceptions=True)
    answers = []
    for each in found:
        if isinstance(each, BaseException):
            raise each
        answers.append(each)
    return answers


async def _row(prompt: Prompt, pool: Sequence[Backend], answers: Sequence[Response], judge: Judge) -> dict[str, Any]:
    request = prompt.request("any")
    reader, trusted = Reader(request), answers[0]
    row: dict[str, Any] = {"id": prompt.id, "prompt": request.last_user, "q": {}, "out_tok": {}, "ans": {}}
    for backend, answer in zip(pool, answers, strict=True):
        if answer.error:
            continue
        quality = await right(prompt, request, answer)
        if quality is None and prompt.expected is None:
            if answer is trusted:
                quality = 1.0
            else:
                quality = await judge.compare(request, answer.choices, trusted.choices, answer.finish)
        row["q"][backend.name], row["out_tok"][backend.name] = quality, answer.output_tokens
        row["ans"][backend.name] = reader.answered(backend.name, answer.choices, answer.finish, None).vote
    return row


def _per_million(caller: Caller, backend: Backend) -> tuple[float, float]:
    """The prices of input and output in USD per million tokens. They are 0 for an own server without a price."""
    price = caller.prices.price(backend)
    if price is None:
        return 0.0, 0.0
    return float(pico_to_usd(price.input * 10**6)), float(pico_to_usd(price.output * 10**6))


def _show(built: Built, out: Path, spent: str, team: str) -> None:
    found = [f"{counted(built.written, 'prompt')} measured, {built.known} known before: {out}"]
    if built.undecided:
        undecided = counted(built.undecided, "answer")
        found.append(f"Without a verdict of the judge: {undecided}; a backend as --judge compares prose.")
    found += [f"{counted(count, 'prompt')} left out: {why}." for why, count in built.skipped.items()]
    if built.stopped:
        found.append(f"Ended early: {built.stopped} Run the command again to go on.")
    tables.sentences(*found, f"{spent} USD, on the ledger under team {team} (kind shadow).")
