"""What every way of deploying shares: a gateway.yaml that passes `check`, a command line that can be typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.domain.units import parse_duration
from gateway.supervisor.ledger_service import LAST_DRAIN_S
from gateway.supervisor.supervisor import STOP_S
from gateway.supervisor.workers import GRACE_S
from tests.docs.markdown import ROOT
from tests.docs.test_deploy import type_in

CLOSING_S = GRACE_S + LAST_DRAIN_S + 2 * STOP_S
"""What a gateway may need after its streams have had their time."""


def checked(file: Path, policies: Path, home: Path) -> dict[str, Any]:
    """The parsed gateway.yaml, after `thriftgate check` on it with secrets that are somewhere else."""
    text = file.read_text(encoding="utf-8")
    secrets = sorted(set(re.findall(r"file:([\w/.-]+)", text)))
    assert secrets
    for number, secret in enumerate(secrets):
        value = {"redis_url": "redis://r:6379/0", "database_url": "postgresql://u:p@d/t"}.get(Path(secret).name, "sk-x")
        (home / str(number)).write_text(value)
        text = text.replace(f"file:{secret}", f"file:{home / str(number)}")
    copy = home / "gateway.yaml"
    copy.write_text(text)
    result = CliRunner().invoke(cli, ["check", "--config", str(copy), "--policies", str(policies)])
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


def typed(words: Sequence[str]) -> None:
    """Raises click's UsageError when the image's program does not understand them."""
    words = [word for word in words if not word.startswith(("--config", "--policies"))]  # paths of the container
    type_in(list(words))


def drain_s(config: dict[str, Any]) -> float:
    return parse_duration(config.get("shutdown", {}).get("grace_period", "30s"))


POLICIES = ROOT / "policies"
