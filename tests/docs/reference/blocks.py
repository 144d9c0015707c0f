"""Generated blocks of a page: found, made anew, put back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.docs.reference import commands, errors, metrics, routes, settings

_BLOCK = re.compile(r"(<!-- generated: (\w+)((?: [\w.-]+)*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

Kept = Mapping[str, str]
"""First cell of a row, without backticks → last cell."""
GENERATORS: Mapping[str, Callable[[Kept, tuple[str, ...]], str]] = {
    "gateway": settings.gateway_table,
    "backend": settings.backend_table,
    "policy": settings.policy_table,
    "commands": commands.overview,
    "command": commands.details,
    "errors": errors.errors_table,
    "metrics": metrics.metrics_table,
    "routes": routes.routes_table,
}


def regenerated(text: str) -> str:
    """The page's text with every generated block as the code has it now."""

    def block(found: re.Match[str]) -> str:
        head, name, arguments, body, end = found.groups()
        return f"{head}{GENERATORS[name](kept(body), tuple(arguments.split()))}{end}"

    return _BLOCK.sub(block, text)


def generated(page: Path, name: str) -> list[str]:
    """The contents of every block called `name`."""
    return [body for _, block, _, body, _ in _BLOCK.findall(page.read_text(encoding="utf-8")) if block == name]


def kept(body: str) -> dict[str, str]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line.startswith("|")]
    return {row[0].strip("`"): row[-1] for row in rows[2:]}
