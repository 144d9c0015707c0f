"""`thriftgate backends add`: writes a backend into gateway.yaml, after the backend has answered."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import SecretStr

from gateway.backends.providers.discover import backends_of
from gateway.backends.providers.model_size import size_of
from gateway.backends.reachability import Reached, reach
from gateway.cli import tables
from gateway.cli.diagnosis.reached import mark
from gateway.cli.echo import echo
from gateway.cli.operation.recipes import RECIPES, Recipe, credential
from gateway.cli.operation.starter_files import HEAD, Entry, entry, flow_item, item, write_new
from gateway.cli.options import Context, common
from gateway.domain.backend import STRENGTHS, Backend
from gateway.settings.environment import secret
from gateway.settings.files import ConfigError, parse, read_document, validated
from gateway.settings.gateway import GatewayConfig
from gateway.settings.insertion import with_items
from gateway.settings.remedies import did_you_mean
from gateway.settings.running import RunningGateway, running

_REFERENCE = re.compile(r"(env|file):.+")
_UNFIT = re.compile(r"[^A-Za-z0-9._:/-]+")


@click.command("add", short_help="Write a backend into gateway.yaml, after it has answered.")
@common
@click.argument("recipe", required=False)
@click.option("--model", help="The model's name at the provider.")
@click.option("--name", help="The backend's name; default: the model's name.")
@click.option("--base-url", help="The address; default: that of the recipe.")
@click.option("--key", help="env:NAME or file:PATH of its API key; default: that of the recipe.")
@click.option("--strength", type=click.Choice(STRENGTHS), help="For own machines; default: by the model's size.")
@click.option("--set", "more", multiple=True, metavar="KEY=VALUE", help="Any other key of a backend. Repeatable.")
@click.option("--untested", is_flag=True, help="Write it even if it does not answer from here.")
def add(
    context: Context,
    recipe: str | None,
    model: str | None,
    name: str | None,
    base_url: str | None,
    key: str | None,
    strength: str | None,
    more: tuple[str, ...],
    untested: bool,
) -> None:
    """Write a backend into gateway.yaml, after it has answered one request.

    RECIPE is a vendor, a cloud or a model server; without it, the recipes are listed. On a terminal, the command asks
    for what is missing. The request is for the list of models: it costs nothing and contains no prompt. All comments of
    gateway.yaml stay.

    \b
    thriftgate backends add anthropic --model claude-sonnet-4-6
    thriftgate backends add vllm --model qwen2.5-7b-instruct --strength small
    thriftgate backends add bedrock --model amazon.nova-pro-v1:0 --set region=eu-central-1
    """
    if recipe is None:
        _list(context)
        return
    if recipe not in RECIPES:
        near = did_you_mean(recipe, sorted(RECIPES), f"there are {', '.join(RECIPES)}")
        raise click.BadParameter(f"there is no recipe {recipe!r}; {near}", param_hint="RECIPE")
    given = {"model": model, "name": name, "base_url": base_url, "api_key": key, "strength": strength}
    values = _values(recipe, {each: value for each, value in given.items() if value is not None} | _pairs(more))
    path = context.files()[0] or Path("gateway.yaml")
    _refuse_secrets(values)
    before = _existing(path)
    _refuse_name(before, values["name"])
    reached = _try(values)
    if reached.trouble and not untested:
        raise click.ClickException(f"Nothing was written. {_trouble(reached)}\n--untested writes it all the same.")
    others = _write(path, before, Entry(values))
    told = {"config": str(path), "backend": values, "others": others, "reached": asdict(reached)}
    context.print(told, lambda: _show(path, values, others, reached))


def _values(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the backend's entry, in the order in which they are written. `given`: the values from the command
    line. Asks the user for missing keys, or raises UsageError."""
    recipe = RECIPES[name]
    values = {"kind": recipe.kind or name, **recipe.values, **given}
    missing = {each: example for each, example in {"model": recipe.model, **recipe.needs}.items() if each not in values}
    if missing and not sys.stdin.isatty():
        words = [f"--set {each}={example}" if each in recipe.needs else f"--{each} {example}" for each, example in
                 missing.items()]  # fmt: skip
        raise click.UsageError(
            f"{recipe.title} needs more; for example {' '.join(words)}".replace("--set base_url=", "--base-url ")
        )
    for each, example in missing.items():
        values[each] = click.prompt(f"{each} (for example {example})", err=True)
    values.setdefault("name", _UNFIT.sub("-", str(values["model"])))
    if recipe.own and "strength" not in values:
        values["strength"] = _strength(values["model"])
    first = ("name", "kind", "model", "base_url", "api_key")
    return {each: values[each] for each in (*first, *(key for key in values if key not in first)) if each in values}


def _strength(model: str) -> str:
    size = size_of({"id": model})
    if size is not None or not sys.stdin.isatty():
        return "small" if size is None else size.strength
    return str(click.prompt("strength", type=click.Choice(STRENGTHS), default="small", err=True))


def _pairs(more: Sequence[str]) -> dict[str, Any]:
    values = {}
    for pair in more:
        key, separator, text = pair.partition("=")
        if not separator or key not in Backend.model_fields:
            near = did_you_mean(key, sorted(Backend.model_fields), "docs/reference/gateway-yaml.md lists the keys")
            raise click.BadParameter(f"{pair!r} must be KEY=VALUE with a key of a backend; {near}", param_hint="--set")
        try:
            values[key] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise click.BadParameter(f"{pair!r} has no valid YAML value", param_hint="--set") from error
    return values


def _refuse_secrets(values: Mapping[str, Any]) -> None:
    """Raise BadParameter if one of the values is a secret, so that no secret is written into the file. The message does
    not contain the value."""
    options = {"api_key": "--key", **{name: f"--set {name}" for name in ("bearer_token", "client_secret")}}
    for key, option in options.items():
        if values.get(key) is not None and not _REFERENCE.fullmatch(str(values[key])):
            raise click.BadParameter("must be env:NAME or file:PATH, so that the file has no secret", param_hint=option)
    if "@" in str(values.get("base_url", "")).partition("://")[2].partition("/")[0]:
        raise click.BadParameter("must have no user and password; give the key with --key", param_hint="--base-url")


def _existing(path: Path) -> tuple[str, GatewayConfig] | None:
    """Read gateway.yaml. Returns its text and its content; None if the file does not exist. Raises ConfigError."""
    if not path.exists():
        return None
    read_document(path)  # with its limits on size and depth
    with path.open(encoding="utf-8", newline="") as file:
        text = file.read()
    return text, parse(text, GatewayConfig, str(path))


def _refuse_name(before: tuple[str, GatewayConfig] | None, name: str) -> None:
    if before is not None and any(each.name == name for each in before[1].backends or ()):
        raise click.UsageError(f"There is a backend {name!r} already; give another --name.")


def _try(values: Mapping[str, Any]) -> Reached:
    """Send a request to the backend as the gateway would. Raises ClickException if no backend can have these values."""
    try:
        backend = validated(Backend, dict(values), lambda path: "".join(f"{step}: " for step in path))
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if backend.api_key is not None:
        try:
            key = secret(backend.api_key.get_secret_value(), "api_key")
        except ConfigError as error:
            return Reached(backend.name, str(error))
        backend = backend.model_copy(update={"api_key": SecretStr(key)})
    with tables.working(f"asking {backend.name}"):
        return asyncio.run(reach(backend))


def _write(path: Path, before: tuple[str, GatewayConfig] | None, new: Entry) -> list[str]:
    """Write the backend to the file. If the file had no list of backends, the backends that the gateway found by itself
    are written, too. Returns the names of these found backends."""
    found: list[Entry] = []
    if before is None or before[1].backends is None:
        config = before[1] if before else GatewayConfig()
        found = [entry(each) for each in asyncio.run(backends_of(config, None)) if each.name != new.values["name"]]
    entries = [*found, new]
    try:
        text = with_items(before[0] if before else HEAD, "backends", *_texts(entries))
        after = parse(text, GatewayConfig, str(path))
    except (ValueError, yaml.YAMLError) as error:
        raise click.ClickException(f"{path} is not changed ({error}). Add under backends:\n{item(new)}") from error
    if before is None:
        write_new(path, text)
    elif after.model_copy(update={"backends": before[1].backends}) != before[1]:
        raise click.ClickException(f"{path} is not changed: it is written unusually. Add under backends:\n{item(new)}")
    else:
        _replace(path.resolve(), text)
    return [str(each.values["name"]) for each in found]


def _texts(entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
    return [item(each) for each in entries], [flow_item(each) for each in entries]


def _replace(path: Path, text: str) -> None:
    """Write the whole file; if there is an error, the old file stays."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
        part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}.") from error


def _trouble(reached: Reached) -> str:
    return f"{reached.name}: {reached.trouble}."


def _show(path: Path, values: Mapping[str, Any], others: list[str], reached: Reached) -> None:
    echo(mark(reached))
    echo(f"{path} has it now:\n{item(Entry(values))}")
    if others:
        echo(f"Also written, since a list replaces what the gateway finds by itself: {', '.join(others)}")
    for gateway in running():
        echo(_next(gateway, path))


def _next(gateway: RunningGateway, path: Path) -> str:
    """A sentence about the next step: what to do with a running gateway, or a warning that this
    gateway reads another file."""
    if gateway.config is not None and gateway.config.resolve() == path.resolve():
        return f"The gateway on {gateway.url} uses it after a rolling restart: kill -USR2 {gateway.pid}"
    if gateway.config is None:
        return f"The gateway on {gateway.url} reads no gateway.yaml. Start it again with --config {path.absolute()}"
    return f"The gateway on {gateway.url} does not read this file. For that one, add --config {gateway.config}"


def _list(context: Context) -> None:
    rows = [_row(name, recipe) for name, recipe in RECIPES.items()]
    context.print(rows, lambda: _show_list(rows))


def _row(name: str, recipe: Recipe) -> dict[str, Any]:
    return {
        "recipe": name,
        "for": recipe.title,
        "model": recipe.model,
        "key": credential(name),
        "needs": list(recipe.needs),
    }


def _show_list(rows: list[dict[str, Any]]) -> None:
    table = tables.Table("recipe", *tables.prose("for"), "key or credential", *tables.prose("also needs"))
    for row in rows:
        table.add_row(row["recipe"], row["for"], row["key"], ", ".join(row["needs"]))
    tables.console(highlight=False).print(table)
    echo("\nNext: thriftgate backends add RECIPE --model MODEL")
