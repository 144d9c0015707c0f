"""Every command that a page names, executed or not, exists and understands its words."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from click import Command, Context, Group

from gateway.cli.main import cli
from tests.docs.markdown import PAGES, ROOT

_LINE = re.compile(r"^ *(?:\$ )?(thriftgate (?!serve ──).+)$", re.MULTILINE)
_MODULE = re.compile(r"python -m ((?:gateway|loadtests)[\w.]*)")
COMMANDS = [
    pytest.param(re.sub(r"\s+#.*| \[.*?\]| [<>|].*", "", line), id=f"{page.relative_to(ROOT)}: {line}")
    for page in PAGES
    for line in _LINE.findall(page.read_text(encoding="utf-8"))
]
MODULES = {name for page in PAGES for name in _MODULE.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_a_page_can_be_typed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    words = shlex.split(line)[1:]
    for word in words:
        if re.fullmatch(r"[\w-]+\.(jsonl|jsonl\.gz|json)|FILE…", word):
            Path(word).touch()
    command: Command = cli
    while isinstance(command, Group):
        found = command.get_command(Context(command), words.pop(0))
        assert found is not None, line
        command = found
    with command.make_context(command.name, words):
        pass


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_module_that_is_run_exists(name: str) -> None:
    assert find_spec(name) is not None


def test_every_page_that_code_names_exists() -> None:
    """In a comment, an error or a configuration: `docs/explanation/routing.md`."""
    suffixes = {".py", ".yaml", ".yml", ".toml", ".service"}
    named = {
        (name, str(path.relative_to(ROOT)))
        for folder in ("gateway", "training", "loadtests", "deploy", "policies")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes
        for name in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert named
    assert not [pair for pair in named if not (ROOT / pair[0]).is_file()]
