"""The names that documents have for settings: of renamed keys the new ones."""

from __future__ import annotations

from gateway.settings.renamed_keys import GATEWAY, POLICY, RenamedKey, SplitTier, SwitchToValue

_TABLES = {"gateway": GATEWAY, "backend": GATEWAY, "policy": POLICY}


def new_name(model: str, key: str) -> str | None:
    """`key` of the gateway's, a backend's or a policy's model, as documents write it; None: another replaced it."""
    steps = (f"backends.{key}" if model == "backend" else key).split(".")
    found = list(steps)
    for row in _TABLES[model]:
        old = _steps(row.section, row.old)
        if steps[: len(old)] != old:
            continue
        if isinstance(row, SwitchToValue | SplitTier):
            return None
        if isinstance(row, RenamedKey):
            found[len(old) - 1] = row.new
    return ".".join(found).removeprefix("backends." if model == "backend" else "")


def _steps(section: str, key: str) -> list[str]:
    """`models.*` and `reference` → `models`, `NAME` and `reference`."""
    return ["NAME" if step == "*" else step for step in (*section.split("."), key) if step not in ("", "[]")]
