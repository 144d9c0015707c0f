"""The command line: a table of all commands, and of each what `--help` says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping

import click

from gateway.cli.main import cli

COMMON = ("config", "data_dir", "policies", "as_json", "help")


FORMER = ("--output", "--concurrent")
"""Former spellings of options, which work but are not listed."""


def leaves(command: click.Command, context: click.Context, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """`serve`, `keys create` …"""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        assert sub is not None
        if sub.hidden:
            continue
        yield from leaves(sub, context, f"{path} {name}".strip())


def overview(kept: Mapping[str, str], arguments: tuple[str, ...]) -> str:
    lines = ["| command | what it does |", "|---|---|"]
    for path, command in leaves(cli, click.Context(cli)):
        what = kept.get(path, command.get_short_help_str(200))
        lines.append(f"| `{path}` | {what} |")
    return "\n".join(lines) + "\n"


def details(kept: Mapping[str, str], groups: tuple[str, ...]) -> str:
    """Usage, help and options of every command of `groups`."""
    parts = [_detail(path, command) for path, command in leaves(cli, click.Context(cli)) if path.split()[0] in groups]
    return "\n".join(parts)


def _detail(path: str, command: click.Command) -> str:
    context = click.Context(command)
    arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
    lines = [f"### {path}", "", f"`{' '.join(['thriftgate', path, '[OPTIONS]', *arguments])}`", ""]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines += [*_paragraph(paragraph), ""]
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in COMMON]
    if options:
        lines += ["| option | default | meaning |", "|---|---|---|", *map(_option, options), ""]
    return "\n".join(lines)


def _paragraph(text: str) -> Iterator[str]:
    """Examples go into a fence; lines that click would not wrap keep their ends."""
    text, literal = text.replace("\b\n", ""), text.startswith("\b")
    lines = [line.strip() for line in text.splitlines()]
    if not literal:
        yield _escaped(" ".join(lines))
        return
    examples = [line for line in lines if re.match(r"(?:.*\| )?thriftgate ", line)]
    if examples:
        yield from ("```sh", *examples, "```")
    rest = [line for line in lines if line not in examples]
    if rest and examples:
        yield ""
    if len(rest) == 1:
        yield _escaped(rest[0])
        return
    yield from ("- " + _escaped(re.sub(r"^(\w+)  +", r"`\1`: ", line)) for line in rest)


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts) if name not in FORMER)
    metavar = option.make_metavar(click.Context(click.Command("_")))
    takes = "" if option.is_flag or option.count else f" {_escaped(metavar)}".removesuffix(" RANGE")
    if isinstance(option.type, click.IntRange | click.FloatRange):
        takes += f" ({_escaped(option.type._describe_range())})"
    default = "required" if option.required else "–"
    if option.show_default and option.default is not None and not option.is_flag:
        default = f"`{option.default}`"
    return f"| {names}{takes} | {default} | {_escaped(option.help or '')} |"


def _escaped(text: str) -> str:
    """`|` ends a cell, `<` begins a tag."""
    return text.replace("|", ", ").replace("<", "&lt;")
