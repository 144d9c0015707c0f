"""The routes of files and batches over a real database and disk; nobody works on the batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette

from gateway.batches.files import Files
from gateway.batches.jobs import Jobs
from gateway.batches.message_jobs import MessageJobs
from tests.fakes.client import JSON, Client


@dataclass
class Desk:
    routes: Starlette
    files: Files
    jobs: Jobs
    message_jobs: MessageJobs
    secrets: dict[str, str]
    """Team → key."""

    async def send(self, path: str, *, team: str = "search", method: str = "GET", **more: Any) -> Client:
        """One request, answered. A body is JSON unless its headers say otherwise."""
        more = {"headers": JSON, **more}
        return await Client(self.routes, path, method=method, key=self.secrets.get(team, team), **more).run()
