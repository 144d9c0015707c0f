"""The names that documents have for settings: of renamed keys the new ones."""

from __future__ import annotations

from gateway.domain.backend import Backend
from gateway.domain.policy import Policy, Section
from gateway.settings.renamed_keys import GATEWAY, POLICY, RenamedKey, SplitTier, SwitchToValue


def new_name(model: type[Section], key: str) -> str | None:
    """`key` of the gateway's, a backend's or a policy's model, as a file is to write it; None: another replaced it."""
    prefix = "backends." if model is Backend else ""
    steps = f"{prefix}{key}".split(".")
    found = list(steps)
    for row in POLICY if model is Policy else GATEWAY:
        old = _steps(row.section, row.old)
        if steps[: len(old)] != old:
            continue
        if isinstance(row, SwitchToValue | SplitTier):
            return None
        if isinstance(row, RenamedKey):
            found[len(old) - 1] = row.new
    return ".".join(found).removeprefix(prefix)


def _steps(section: str, key: str) -> list[str]:
    """`models.*` and `reference` → `models`, `NAME` and `reference`."""
    return ["NAME" if step == "*" else step for step in (*section.split("."), key) if step not in ("", "[]")]
