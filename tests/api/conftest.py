"""The routes of one worker over real parts, and keys to use them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from gateway.admission.load_shedding import LoadShedder
from gateway.api.auth import Authenticator
from gateway.api.idempotency.idempotency import Idempotency
from gateway.api.routes.admin import Admin
from gateway.api.routes.alerts import AlertRoutes
from gateway.api.routes.batches import BatchRoutes
from gateway.api.routes.inference import Inference
from gateway.api.routes.message_batches import MessageBatchRoutes
from gateway.api.routes.models import ModelRoutes
from gateway.api.routes.service import ServiceRoutes
from gateway.api.routes.usage import UsageFigures
from gateway.api.server.asgi import Pace
from gateway.api.server.cors import Cors
from gateway.api.server.envelope import Envelope
from gateway.api.server.shutdown import ShutdownFlag
from gateway.api.server.upload import Uploads
from gateway.batches.files import Files
from gateway.batches.jobs import Jobs
from gateway.batches.message_jobs import MessageJobs
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.context.strategies.flagged_turns import FlaggedTurns
from gateway.context.strategies.flags import Flags
from gateway.context.strategies.strategy import InTurn
from gateway.learning.feedback import Feedback
from gateway.policy import keys
from gateway.policy.keys import Keys
from gateway.policy.load import Policies
from gateway.policy.tenants import Tenants
from gateway.settings.gateway import Ceilings, RequestLimits
from gateway.settings.prices import PriceSettings
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.api.batch_desk import Desk
from tests.fakes.client import JSON, Client
from tests.fakes.gateway import InProcessGateway, backend, catalogue, open_gateway

Knock = Callable[..., Awaitable[Client]]

POLICY = "team: search\nmodels: {mine: small, ours: {candidates: [small]}, own-*: small}\ncache: {enabled: false}\n"


@dataclass
class Api:
    """A gateway in this process, and its HTTP routes."""

    gateway: InProcessGateway
    inference: Inference
    make_inference: Callable[..., Inference]
    """Another worker's endpoint, with an `idempotency` of its own."""
    routes: Starlette
    ring: Keys
    policies: Policies
    drain: ShutdownFlag
    overload: LoadShedder
    folder: Path
    flags: Flags
    secrets: dict[str, str]
    """Name → key; the name is the team's, or its scopes'."""

    async def key(self, name: str, team: str = "search", *scopes: str, **more: Any) -> keys.Key:
        secret, key = await asyncio.to_thread(
            lambda: keys.create(self.gateway.database, team, scopes=scopes or ("inference",), **more)
        )
        self.secrets[name] = secret
        await self.ring.refresh()
        return key

    async def send(self, path: str, *, key: str = "search", method: str = "GET", **more: Any) -> Client:
        """One request of the routes around inference, answered; `key` is a name."""
        client = Client(self.routes, path, method=method, key=self.secrets.get(key, key), **more)
        return await client.run()

    def client(self, body: bytes, *, key: str = "search", **more: Any) -> Client:
        """A request of the inference endpoint, not yet sent."""
        headers = {**JSON, **more.pop("headers", {})}
        return Client(self.inference, key=self.secrets.get(key, key), body=body, headers=headers, **more)


@pytest.fixture
async def api(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Api]:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "search.yaml").write_text(POLICY)
    async with open_gateway(
        state,
        database,
        tmp_path,
        more=lambda provider: (backend(provider, "far", tier="hosted", region="us", api_key="sk-upstream-secret"),),
    ) as gateway:
        policies = await asyncio.to_thread(Policies, [folder], Ceilings())
        ring = Keys(database)
        tenants = Tenants(ring, policies)
        drain = ShutdownFlag()
        overload = LoadShedder(concurrent=2000, lag_s=10.0)
        authenticator = Authenticator(tenants)
        idempotency = Idempotency(state, patience_s=5)
        make_inference = partial(
            Inference,
            tenants=tenants,
            pipeline=gateway.pipeline,
            telemetry=gateway.telemetry,
            limits=RequestLimits(max_body_bytes=10_000, body_timeout=0.2, deadline=5),
            overload=overload,
            envelope=Envelope(Cors(("*",)), "auto"),
        )
        inference = make_inference(idempotency=idempotency)
        spend = UsageFigures(
            database,
            catalogue(),
            policy_of=lambda team: policies.current.find(team)[0],
            backends=lambda: gateway.fleet.backends,
            organisations={},
            terms=PriceSettings(),
        )
        flags = Flags(state)
        gateway.pipeline.answered = flags.answered
        gateway.pipeline.contexts = contexts = Contexts(Counter(), strategy=InTurn(FlaggedTurns(flags)))
        service = ServiceRoutes(
            authenticator=authenticator,
            fleet=gateway.fleet,
            telemetry=gateway.telemetry,
            state=state,
            ring=ring,
            policies=policies,
            drain=drain,
            feedback=Feedback(database),
            spend=spend,
            cache_wrong=gateway.pipeline.cache.wrong,
            reported=flags.report,
        )
        alerts = AlertRoutes(authenticator=authenticator, database=database, clock=time)
        admin = Admin(
            authenticator=authenticator, fleet=gateway.fleet, database=database, policies=policies, spend=spend
        )
        root = ModelRoutes(authenticator=authenticator, fleet=gateway.fleet)
        routes = Starlette(routes=[*root.routes, *service.routes, *admin.routes, *alerts.routes])
        opened = Api(gateway, inference, make_inference, routes, ring, policies, drain, overload, folder, flags, {})
        await opened.key("search")
        yield opened
        await flags.aclose()
        contexts.close()
        await idempotency.aclose()


@pytest.fixture
async def desk(database: Database, tmp_path: Path) -> Desk:
    files = Files(tmp_path / "data" / "files", database)
    await files.open()
    secret, _ = await asyncio.to_thread(keys.create, database, "search")
    ring = Keys(database)
    await ring.refresh()
    authenticator = Authenticator(Tenants(ring, await asyncio.to_thread(Policies, [], Ceilings())))
    jobs = Jobs(database, files, max_line_bytes=10_000, max_line_items=1000)
    message_jobs = MessageJobs(database, files, max_line_bytes=10_000, max_line_items=1000)
    batches = BatchRoutes(authenticator=authenticator, files=files, jobs=jobs, uploads=Uploads(Pace(30.0)))
    messages = MessageBatchRoutes(
        authenticator=authenticator,
        files=files,
        jobs=message_jobs,
        uploads=Uploads(Pace(30.0)),
        max_request_bytes=10_000,
    )
    routes = Starlette(routes=[*batches.routes, *messages.routes])
    return Desk(routes, files, jobs, message_jobs, {"search": secret})
