"""Every command explains itself, takes the common options, and is spelled in the documents as it is called."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.cli.main import COMMANDS, GROUPS, MERGED, cli, main
from gateway.cli.teams.client_settings import CLIENTS
from tests.docs.markdown import commands, executed

COMMON = ("--config FILE", "--data-dir DIR", "--policies DIR", "--json")


def tree(command: click.Command = cli, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """(words, command) of every command, groups first."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            assert sub is not None
            if sub.hidden:
                continue
            yield from tree(sub, *path, name)


TREE = dict(tree())
TYPED = [part for line in executed(commands) for part in re.findall(r"thriftgate [^|>]+", line)]


def helped(*words: str) -> str:
    """What --help prints, which must end well."""
    result = CliRunner().invoke(cli, [*words, "--help"], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("words", TREE, ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    text = " ".join(helped(*words).split())
    assert text.startswith("Usage: ")
    if not isinstance(TREE[words], click.Group):
        for option in COMMON:
            assert option in text


@pytest.mark.parametrize("words", TREE, ids=" ".join)
def test_every_option_says_what_it_is_for(words: tuple[str, ...]) -> None:
    for parameter in TREE[words].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@pytest.mark.parametrize("words", [words for words, command in TREE.items() if isinstance(command, click.Group)])
def test_no_line_in_a_list_of_commands_is_cut_short(words: tuple[str, ...]) -> None:
    listed = helped(*words)
    assert "Commands:" in listed or not words
    assert "..." not in listed.partition("Usage")[2].partition("\n")[2]


def test_the_list_is_told_without_loading_a_command_by_purpose_and_fits_80_columns() -> None:
    text = helped()
    for name in MERGED:
        assert not re.search(rf"^  {name} ", text, re.MULTILINE)
        assert cli.get_command(click.Context(cli), name) is not None
    for name, (_, line) in COMMANDS.items():
        assert name in MERGED or re.search(rf"^  {name} +{re.escape(line)}$", text, re.MULTILINE)
    for group in GROUPS:
        assert f"\n{group}:\n" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "words",
    [("chaos",), ("ledger", "unpriced"), ("ledger", "reprice"), ("router", "learned"), ("router", "trial"),
     ("router", "rollback")],
)  # fmt: skip
def test_a_former_name_works_and_is_not_listed(words: tuple[str, ...]) -> None:
    assert "Usage:" in helped(*words)
    assert words not in TREE
    assert not re.search(rf"^  {words[-1]} ", helped(*words[:-1]), re.MULTILINE)


def test_a_command_that_is_misspelt_is_answered_with_the_right_one() -> None:
    result = CliRunner().invoke(cli, ["statsu"])
    assert result.exit_code == 2
    assert "There is no command 'statsu'; did you mean status?" in result.output


LINES = [part for line in executed(commands) for part in re.findall(r"thriftgate [^|>]+", line)]


@pytest.mark.parametrize("line", LINES)
def test_every_command_in_the_documents_exists(line: str) -> None:
    words = shlex.split(line)[1:]
    while words and tuple(words) not in TREE:
        words.pop()
    assert words, line
    assert not isinstance(TREE[tuple(words)], click.Group), line


@pytest.mark.parametrize("words", TREE, ids=" ".join)
def test_the_examples_in_the_help_can_be_typed(words: tuple[str, ...]) -> None:
    for line in re.findall(r"^ *(?:.*\| )?(thriftgate .+?)(?: > .+)?$", TREE[words].help or "", re.MULTILINE):
        typed = shlex.split(re.split(r"  +", line)[0])[1:]
        command: click.Command = cli
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), typed.pop(0))
            assert found is not None, line
            command = found
        with command.make_context(command.name, typed):
            pass


def test_a_mistake_in_a_file_is_told_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gateway.yaml").write_text("listen: {prot: 8080}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["thriftgate", "check", "--config", str(tmp_path / "gateway.yaml")])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    assert "gateway.yaml:1: listen.prot: unknown key" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "name", "former"),
    [(("usage",), "--out", "--output"), (("compare",), "--concurrency", "--concurrent")],
)
def test_a_former_spelling_of_an_option_works_and_is_not_shown(words: tuple[str, ...], name: str, former: str) -> None:
    assert re.search(rf"^  {name} ", helped(*words), re.MULTILINE)
    assert not re.search(rf"{former}\b", helped(*words))
    option = next(each for each in TREE[words].params if name in each.opts)
    assert former in option.opts


def test_the_help_of_connect_lists_every_client() -> None:
    words = helped("connect").replace(",", " ").replace(".", " ").split()
    assert set(CLIENTS) <= set(words)
