"""The table of all routes, as `/openapi.json` has them."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.api.openapi.operations import INFERENCE, OPERATIONS


def routes_table(kept: Mapping[str, str], arguments: tuple[str, ...]) -> str:
    operations = {("POST", path): operation for path, operation in INFERENCE.items()} | dict(OPERATIONS)
    lines = ["| route | scope of the key | what it does |", "|---|---|---|"]
    for (method, path), operation in operations.items():
        scopes = ", ".join(operation.scopes) or "none"
        lines.append(f"| `{method} {path}` | {scopes} | {operation.summary} |")
    return "\n".join(lines) + "\n"
