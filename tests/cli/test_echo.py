"""No command prints past the two places that write out what a terminal would obey."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from gateway.cli import tables

COMMANDS = sorted((Path(tables.__file__).parent).rglob("*.py"))
PAST = re.compile(r"click\.s?echo\(|\bsecho\(|(?<![\w.])Console\(|rich\.table import", re.M)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_a_command_prints_through_echo_or_paper(path: Path) -> None:
    if path.stem not in ("echo", "tables"):
        assert PAST.findall(path.read_text()) == []


def test_a_table_shows_markup_emoji_codes_and_control_characters_as_text() -> None:
    out = io.StringIO()
    table = tables.Table("name", title="[bold]title[/]")
    table.add_row("[/] [link=http://x]:smile:\x1b]8;;http://x\x07\nnext")
    tables.Output(file=out, width=120).print(table)
    text = out.getvalue()
    assert "\x1b" not in text
    assert "[/] [link=http://x]:smile:\\x1b]8;;http://x\\x07\\nnext" in text
    assert "[bold]title[/]" in text


def test_progress_is_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    with tables.working("hashing every row"):
        pass
    assert capsys.readouterr() == ("", "")
