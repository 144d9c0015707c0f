"""The repository's Markdown as values: fenced blocks, marked tables, links and headings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LLMS = ROOT / "llms.txt"
REFERENCE = ROOT / "docs" / "reference"
DOCS = tuple(sorted(ROOT.glob("docs/**/*.md")))
EXECUTED = (README, *DOCS)
"""Pages of which every command and snippet is executed; those below deploy/ need engines and clusters."""
PAGES = tuple(sorted([*ROOT.glob("*.md"), *DOCS, *ROOT.glob("deploy/*.md"), *ROOT.glob("loadtests/*.md")]))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Fence:
    """One fenced block. `line` is where it begins, from 1."""

    language: str
    text: str
    line: int


def fences(page: Path, *languages: str) -> list[Fence]:
    """In order; of all languages where none is named."""
    text = page.read_text(encoding="utf-8")
    found = [Fence(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(text)]
    return [fence for fence in found if not languages or fence.language in languages]


def commands(page: Path) -> list[str]:
    """What stands after `$ ` in console blocks, continued lines joined."""
    lines: list[str] = []
    for fence in fences(page, "console"):
        for line in fence.text.splitlines():
            if line.startswith("$ "):
                lines.append(line[2:])
            elif lines and lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1] + line.strip()
            else:
                raise AssertionError(f"{page.name}: neither a command nor its continuation: {line!r}")
    return lines


def executed(part: Callable[[Path], Iterable[str]]) -> dict[str, str]:
    """What `part` finds on the pages that are executed → the first page that has it."""
    found: dict[str, str] = {}
    for page in EXECUTED:
        for each in part(page):
            found.setdefault(each, str(page.relative_to(ROOT)))
    return found


def yaml_block(page: Path, name: str) -> str:
    """The block that begins with the comment `# NAME`."""
    (found,) = [fence.text for fence in fences(page, "yaml") if fence.text.startswith(f"# {name}\n")]
    return found


def table(name: str, page: Path) -> list[list[str]]:
    """The cells of every row of the tables after `<!-- table: NAME -->`, their heads left out."""
    _, *tables = page.read_text(encoding="utf-8").split(f"<!-- table: {name} -->\n")
    assert tables, f"{page.name} has no table {name}"
    found = []
    for text in tables:
        rows = [cells(line) for line in text.partition("\n\n")[0].splitlines()]
        assert all(len(row) == len(rows[0]) for row in rows), f"a row of the table {name} has too many or too few cells"
        found += rows[2:]
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def first_column(name: str, page: Path) -> list[str]:
    """Without backticks."""
    return [row[0].strip("`") for row in table(name, page)]


def without_code(page: Path) -> str:
    """The page's prose; links and headings inside fenced blocks are none."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    return _LINK.findall(without_code(page))


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
