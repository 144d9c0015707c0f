"""`thriftgate cache stats`, `show` and `flush`: show and delete the cache of a running gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import click
import orjson

from gateway.cache.cache import Cache
from gateway.cache.entry import Entry, Flush
from gateway.cli import tables
from gateway.cli.echo import counted, echo_json
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.zones import span
from gateway.domain.units import parse_duration, usd_text
from gateway.errors import StateUnavailable
from gateway.ledger.reports.formats import cents_of
from gateway.settings.gateway import Settings
from gateway.state.redis import own_socket
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog

CATCH_UP_S = 30.0
"""Maximum seconds to wait until the index of the running gateway's answers has been read."""
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Which:
    """The criteria by which a command selects cached answers. A criterion that is None selects all answers."""

    team: str | None
    tag: str | None
    prefix: str | None
    age_s: float | None

    @property
    def flush(self) -> Flush:
        return Flush(self.team or "", time.time() - (self.age_s or 0.0), self.tag, self.prefix)

    @property
    def all(self) -> bool:
        return (self.team, self.tag, self.prefix, self.age_s) == (None, None, None, None)

    @property
    def description(self) -> str:
        parts = [
            f"of team {self.team}" if self.team else "of all teams",
            f"tagged {self.tag}" if self.tag else "",
            f"tagged {self.prefix}…" if self.prefix else "",
            f"older than {self.age_s:g} s" if self.age_s else "",
        ]
        return ", ".join(filter(None, parts))


def chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --team, --tag, --prefix and --older-than to a command."""
    command = click.option("--older-than", help="Only answers older than this, e.g. 12h.")(command)
    command = click.option("--prefix", help="Only answers with a tag that begins with this, e.g. docs/.")(command)
    command = click.option("--tag", help="Only answers stored with this tag (x-thriftgate-cache-tags).")(command)
    return click.option("--team", help="Only answers of this team.")(command)


def _which(team: str | None, tag: str | None, prefix: str | None, older_than: str | None) -> Which:
    try:
        return Which(team, tag, prefix, parse_duration(older_than) if older_than else None)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--older-than") from error


@click.command(short_help="Delete cached answers by team, tag and prompt.")
@common
@chosen
@click.option("--all", "everything", is_flag=True, help="All answers of all teams.")
@click.option("--yes", is_flag=True, help="Delete them instead of counting them.")
def flush(
    context: Context,
    team: str | None,
    tag: str | None,
    prefix: str | None,
    older_than: str | None,
    everything: bool,
    yes: bool,
) -> None:
    """Delete cached answers of the running gateway by team, tag and age.

    Without --yes, the answers are only counted.
    """
    which = _which(team, tag, prefix, older_than)
    if which.all and not everything:
        raise click.UsageError("Give --team, --tag, --prefix, --older-than, or --all.")

    async def flushed(cache: Cache) -> int:
        return await cache.flush(team or "", tag, which.age_s, dry_run=not yes, prefix=prefix)

    settings = context.of_running()
    if team is not None:
        with open_database(settings, existing=True) as database:
            known_team(database, settings, team)
    count = on_state(settings, flushed)
    would = f"{counted(count, 'answer')} {which.description} would be flushed; add --yes to do it."
    done = f"{counted(count, 'answer')} {which.description} flushed."
    context.print({"team": team, "answers": count, "flushed": yes}, done if yes else would)


@click.command(short_help="Show the size of the cache and its wrong hits.")
@common
@chosen
def stats(context: Context, team: str | None, tag: str | None, prefix: str | None, older_than: str | None) -> None:
    """Show the size of the running cache and its wrong hits, by team and by kind of question.

    `thriftgate usage --by class` and /metrics show the number of answers from the cache and the money that they saved.
    """
    which = _which(team, tag, prefix, older_than)

    async def counted(cache: Cache) -> list[dict[str, Any]]:
        held = _by_team([entry for entry in cache.entries() if which.flush.covers(entry)])
        measured = cache.team_errors()
        return [
            {**row, "wrong_hits": _wrong(one := measured.get(row["team"])), "kinds": one["kinds"] if one else {}}
            for row in held
        ]

    found = on_state(context.of_running(), counted)

    def table() -> None:
        figures = tables.numbers("answers", "bytes", "semantic", "one use of each saves", "oldest")
        shown = tables.Table("team", *figures, *tables.prose("wrong hits", "tags"))
        for row in found:
            shown.add_row(
                *(row["team"], f"{row['answers']:,}", f"{row['bytes']:,}", f"{row['by_meaning']:,}"),
                *(f"${cents_of(row['saves_usd'])}", span(row["oldest_s"])),
                *(_shown(row["wrong_hits"]), ", ".join(row["tags"])),
            )
        tables.console().print(shown)
        if any(row["kinds"] for row in found):
            tables.console().print(_kinds(found))

    context.print(found, table)


def _kinds(found: list[dict[str, Any]]) -> tables.Table:
    """The number of semantic look-ups of each team, by kind of question."""
    figures = tables.numbers("look-ups", "semantic hits")
    shown = tables.Table("team", "kind of question", *figures, *tables.prose("wrong hits"))
    for row in found:
        for kind, one in row["kinds"].items():
            shown.add_row(row["team"], kind, str(one["lookups"]), str(one["hits"]), _shown(_wrong(one)))
    return shown


def _wrong(errors: dict[str, Any] | None) -> dict[str, Any] | None:
    """The figures about wrong hits in one team's semantic cache. None if no hit has been checked yet."""
    if errors is None or not errors["checked"]:
        return None
    names = ("lookups", "hits", "checked", "wrong", "undecided", "wrong_of_lookups", "wrong_of_hits", "interval")
    return {name: errors[name] for name in names}


def _shown(wrong: dict[str, Any] | None) -> str:
    if wrong is None:
        return "not checked yet"
    low, high = wrong["interval"]
    return f"{wrong['wrong_of_lookups']:.2%} of look-ups ({low:.2%} to {high:.2%}), {wrong['checked']} checks"


@click.command()
@common
@chosen
@click.argument("answer", required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Answers to list.")
def show(
    context: Context,
    team: str | None,
    tag: str | None,
    prefix: str | None,
    older_than: str | None,
    answer: str | None,
    limit: int,
) -> None:
    """List cached answers of the running gateway, or show one.

    The newest answers come first. ANSWER: the beginning of an answer's id, as the list shows it.
    """
    which = _which(team, tag, prefix, older_than)

    async def listed(cache: Cache) -> list[dict[str, Any]]:
        found = [
            entry
            for entry in cache.entries()
            if which.flush.covers(entry) and entry.digest.hex().startswith(answer or "")
        ]
        found.sort(key=lambda entry: entry.asked_at, reverse=True)
        rows = [_values(entry) for entry in found[: 1 if answer else limit]]
        if answer and found:
            stored = await cache.stored(found[0].digest)
            rows[0]["answer"] = None if stored is None else orjson.loads(stored.completion)
        return rows

    rows = on_state(context.of_running(), listed)
    if answer and not rows:
        raise click.ClickException(f"No answer whose id begins with {answer} is stored.")

    def table() -> None:
        figures = tables.numbers("bytes", "saves", "age", "ends in")
        shown = tables.Table("id", "team", *figures, *tables.prose("tags", "question"))
        for row in rows:
            question = (row["question"] or "").replace("\n", " ")[:_SHOWN_CHARACTERS]
            shown.add_row(
                *(row["id"][:12], row["team"], f"{row['bytes']:,}", f"${cents_of(row['saves_usd'])}"),
                *(span(row["age_s"]), span(row["ends_in_s"]), ", ".join(row["tags"]), question),
            )
        tables.console().print(shown)
        if answer:
            echo_json(orjson.dumps(rows[0]["answer"], option=orjson.OPT_INDENT_2))

    context.print(rows, table)


def _values(entry: Entry) -> dict[str, Any]:
    now = time.time()
    return {
        "id": entry.digest.hex(),
        "team": entry.team,
        "bytes": entry.size,
        "saves_usd": usd_text(entry.worth_pico),
        "age_s": round(now - entry.asked_at, 1),
        "ends_in_s": round(entry.expires_at - now, 1),
        "tags": list(entry.tags),
        "question": entry.question.text if entry.question else None,
    }


def _by_team(entries: list[Entry]) -> list[dict[str, Any]]:
    teams: dict[str, list[Entry]] = {}
    for entry in entries:
        teams.setdefault(entry.team, []).append(entry)
    return [
        {
            "team": team,
            "answers": len(held),
            "bytes": sum(entry.size for entry in held),
            "by_meaning": sum(entry.question is not None for entry in held),
            "saves_usd": usd_text(sum(entry.worth_pico for entry in held)),
            "oldest_s": round(time.time() - min(entry.asked_at for entry in held), 1),
            "tags": sorted({tag for entry in held for tag in entry.tags}),
        }
        for team, held in sorted(teams.items())
    ]


def on_state(settings: Settings, work: Callable[[Cache], Coroutine[Any, Any, Any]]) -> Any:
    """Call `work` with a cache that is connected to the state of the running gateway."""

    async def run() -> Any:
        state = State(settings.config.state.redis_url or own_socket.url(settings.paths.socket), timeout_s=2.0)
        cache = Cache(state, IndexLog(state, "cache"), None)
        try:
            await state.open()
            await state.call("GET", state.key("epoch"))  # fails at once, with the reason, if there is no server
            await cache.open()
            await cache.caught_up(CATCH_UP_S)
            return await work(cache)
        except StateUnavailable as error:
            raise click.ClickException(
                f"The gateway's state cannot be reached ({error}); is the gateway running on this --data-dir?"
            ) from error
        finally:
            await cache.aclose()
            await state.aclose()

    return asyncio.run(run())
