"""docs/how-to/clients.md tells of the versions that are run."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

REPOSITORY = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "requirements"
_PINNED = re.compile(r"([@a-z][@/a-z0-9-]+) (\d+\.\d+\.?\d*)")
_ELSEWHERE = {"curl"}


def pinned() -> dict[str, set[str]]:
    """Package → the versions that the locks name."""
    found: dict[str, set[str]] = {}
    for lock in REQUIREMENTS.glob("*.lock"):
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE):
            found.setdefault(name, set()).add(version)
    for package in REQUIREMENTS.glob("*/package.json"):
        for name, version in orjson.loads(package.read_bytes())["dependencies"].items():
            found.setdefault(name, set()).add(version)
    return found


def documented_clients() -> list[tuple[str, str]]:
    """Every client in the table of what was run, and every package told of beside one, with its version."""
    text = (REPOSITORY / "docs" / "how-to" / "clients.md").read_text().partition("## Tested versions")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in text.splitlines() if line.startswith("| ")]
    clients = [(name.split(" ")[0], version) for name, version, _ in rows[1:]]
    return [*clients, *(pair for *_, does in rows[1:] for pair in _PINNED.findall(does))]


def test_the_versions_told_of_are_those_that_are_pinned() -> None:
    known = pinned()
    wrong = [
        pair for pair in documented_clients() if pair[0] not in _ELSEWHERE and pair[1] not in known.get(pair[0], set())
    ]
    assert not wrong
    assert len(documented_clients()) >= 24
