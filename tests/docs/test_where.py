"""Where things are: one or two files for each question, with what the table names; every file that names a dialect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import get_args

import pytest

from gateway.domain.request import DialectName
from tests.docs.markdown import ROOT, table

ROWS = table("where", ROOT / "docs" / "explanation" / "architecture.md")
_FILE = re.compile(r"`((?:gateway|docs)/[\w./-]+)`")


def names(source: str) -> Iterator[str]:
    """Functions, classes and assigned names of a module; members as `Class.name`."""
    for node in ast.parse(source).body:
        yield from _bound(node)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                yield from (f"{node.name}.{name}" for name in _bound(member))


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@pytest.mark.parametrize(("question", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_a_question_is_answered_by_two_files_at_most(question: str, answer: str) -> None:
    before, *parts = _FILE.split(answer)
    files = parts[::2]
    assert "`" not in before
    assert 1 <= len(files) <= 2, question
    for file, text in zip(files, parts[1::2], strict=True):
        path = ROOT / file
        assert path.is_file(), file
        if path.suffix != ".py":
            continue
        told = re.match(r": ((?:`[\w.]+`(?:, )?)+)", text)
        assert told is not None, f"{file}: no function is named"
        missing = set(re.findall(r"`([\w.]+)`", told[1])) - set(names(path.read_text(encoding="utf-8")))
        assert not missing, f"{file} has no {', '.join(sorted(missing))}"


def test_the_page_on_dialects_lists_every_table_with_a_row_for_each_dialect() -> None:
    page = (ROOT / "docs" / "contributing" / "add-a-dialect.md").read_text(encoding="utf-8")
    names = {f'"{name}"' for name in get_args(DialectName)}
    missing = []
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        named = sum(name in path.read_text(encoding="utf-8") for name in names)
        if named > 2 and f"`{path.relative_to(ROOT)}`" not in page:
            missing.append(str(path.relative_to(ROOT)))
    assert not missing
