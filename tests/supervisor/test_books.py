"""The ledger's side of the parent process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import select

from gateway.domain.tasks import Tasks
from gateway.ledger.rows import Row
from gateway.policy.load import Policies
from gateway.settings.gateway import Settings, load_settings
from gateway.state.sql import Database
from gateway.state.tables import alerts
from gateway.supervisor.books import Books

POLICY = "team: default\nbudget: {limit_usd: 1, window: day, timezone: UTC, alerts: [50%]}\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "default.yaml").write_text(POLICY)
    (tmp_path / "gateway.yaml").write_text("{}")
    return load_settings(tmp_path / "gateway.yaml", tmp_path, [tmp_path / "rules"])
