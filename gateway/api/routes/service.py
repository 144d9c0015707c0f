"""Routes other than inference: flight records, feedback, usage, health, metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.models import visible_backends
from gateway.api.routes.usage import UsageFigures, usage_response
from gateway.api.server.asgi import read_object
from gateway.api.server.shutdown import ShutdownFlag
from gateway.backends.fleet import Fleet
from gateway.domain.protocols import BackendState
from gateway.domain.tenant import Tenant
from gateway.errors import NotFound, StateUnavailable
from gateway.learning.feedback import Feedback, parse
from gateway.policy.keys import Keys
from gateway.policy.load import Policies
from gateway.state.redis.connection import State
from gateway.telemetry.observe import Telemetry

log = logging.getLogger(__name__)


class ServiceRoutes:
    """Starlette endpoints for flight records, feedback, usage, health and metrics."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        fleet: Fleet,
        telemetry: Telemetry,
        state: State,
        ring: Keys,
        policies: Policies,
        drain: ShutdownFlag,
        feedback: Feedback,
        spend: UsageFigures,
        cache_wrong: Callable[[str, str], Awaitable[None]],
        reported: Callable[[str, str, bool], Awaitable[None]],
        troubles: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`cache_wrong(request id, team)` reports that the cached answer to this request was wrong.

        `reported(request id, team, wrong)` reports whether the answer to this request was wrong. `troubles` returns
        the supervisor's problems; it may block.
        """
        self._fleet, self._telemetry, self._state, self._spend = fleet, telemetry, state, spend
        self._ring, self._policies, self._drain, self._feedback = ring, policies, drain, feedback
        self._cache_wrong, self._reported, self._troubles = cache_wrong, reported, troubles
        figures, admin = authenticator.needs("usage", "admin"), authenticator.needs("admin")
        asked = authenticator.needs("inference", "admin")
        self.routes = [
            Route("/v1/requests/{id}", asked(self.flight)),
            Route("/v1/requests/{id}/feedback", asked(self.feedback), methods=["POST"]),
            Route("/v1/usage", figures(self.usage)),
            Route("/metrics", admin(self.metrics)),
            Route("/health", authenticator.knows(self.health)),
            Route("/health/live", self.live),
            Route("/health/ready", self.ready),
        ]

    async def flight(self, request: Request, tenant: Tenant) -> Response:
        return json_response(await self._flight(request, tenant))

    async def feedback(self, request: Request, tenant: Tenant) -> Response:
        """Store feedback on a request of this key: `{"rating": "good"|"bad"}`, `{"score": 0..1}` or `{"cache":
        "wrong"}`."""
        rating = parse(await read_object(request))
        flight = await self._flight(request, tenant)
        await self._feedback.rate(tenant, flight, rating)
        if rating.cache == "wrong":
            await self._evict(flight["id"], tenant)
        if rating.wrong is not None:
            await self._report(flight["id"], tenant, wrong=rating.wrong)
        return json_response({"heard": True}, 201)

    async def _report(self, request_id: str, tenant: Tenant, *, wrong: bool) -> None:
        try:
            await self._reported(request_id, tenant.team, wrong)
        except StateUnavailable as error:
            log.warning("an answer that was reported as wrong stays in its session: %s", error)

    async def _evict(self, request_id: str, tenant: Tenant) -> None:
        try:
            await self._cache_wrong(request_id, tenant.team)
        except StateUnavailable as error:
            log.warning("a cached answer that was called wrong stays until its time is over: %s", error)

    async def _flight(self, request: Request, tenant: Tenant) -> dict[str, Any]:
        """The flight record of a request: what the gateway decided and did. Raises NotFound.

        Only the key that made the request and the team's admin keys can read it.
        """
        found = await self._telemetry.flight(request.path_params["id"], tenant.team)
        if found is None or not (found["key"] == tenant.key.lineage or "admin" in tenant.key.scopes):
            raise NotFound("No such request of this key; what has ended is known everywhere about a second later.")
        return found

    async def usage(self, request: Request, tenant: Tenant) -> Response:
        """The usage report. A team gets its own spend; an admin key may name another team with ?team=."""
        asked = request.query_params
        team = asked.get("team", tenant.team) if "admin" in tenant.key.scopes else tenant.team
        return await usage_response(self._spend, asked, team)

    async def metrics(self, request: Request, tenant: Tenant) -> Response:
        return Response(await self._telemetry.exposition(), media_type="text/plain; version=0.0.4")

    async def live(self, request: Request) -> Response:
        return json_response({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Answer 200 if the worker can serve requests: keys are read, a backend is configured, and no shutdown has
        begun.
        """
        why = self._why_not_ready()
        return json_response({"status": "not ready", "why": why}, 503) if why else json_response({"status": "ready"})

    def _why_not_ready(self) -> str:
        """The reason why the worker is not ready; empty if it is ready. The reason contains no names from the
        configuration, because every caller can read it.
        """
        if self._drain.draining:
            return "the gateway is shutting down"
        if not self._ring.ready:
            return "the keys have not been read from the database yet"
        if not self._fleet.backends:
            return (
                "no backend is configured: name one under `backends:` in gateway.yaml (`thriftgate init` writes it), "
                "or set a provider's key and start again"
            )
        return ""

    async def health(self, request: Request, tenant: Tenant | None) -> Response:
        """The state of each part, without tenants and addresses. A caller with a key also gets the reasons and the
        state of the key's backends.
        """
        troubles = await asyncio.to_thread(self._troubles)
        parts: dict[str, Any] = {
            "workers": "in trouble" if troubles else "ok",
            "state": "ok" if self._state.healthy else "down",
            "keys": "ok" if self._ring.ready else "not read",
            "policies": "stale" if self._policies.problem else "ok",
            "upstream": self._upstream(),
        }
        well = all(word == "ok" for word in parts.values())
        if tenant is not None:
            parts["workers"] = "; ".join(troubles) or "ok"
            if self._policies.problem:
                parts["policies"] += ": the last reload was refused, see the log"
            admin = "admin" in tenant.key.scopes
            seen = self._fleet.backends if admin else visible_backends(tenant, self._fleet)
            parts["backends"] = {backend.name: _word(self._fleet.state(backend)) for backend in seen}
        return json_response({"status": "ok" if well else "degraded", "parts": parts})

    def _upstream(self) -> str:
        """The state of all backends, as one word, without names and numbers of backends, because every caller can
        read it.
        """
        backends = self._fleet.backends
        if not backends:
            return "no backend is configured"
        failing = sum(bool(self._fleet.state(backend).trouble) for backend in backends)
        return "ok" if not failing else "every backend fails" if failing == len(backends) else "a backend fails"


def _word(state: BackendState) -> str:
    return state.trouble or ("ok" if state.available else state.reason)


def backend_health(tenant: Tenant, fleet: Fleet) -> list[dict[str, Any]]:
    """The state of the backends that the key may use, without addresses and keys. An admin key gets the state of
    all backends, with their load.
    """
    admin = "admin" in tenant.key.scopes
    found = []
    for backend in fleet.backends if admin else visible_backends(tenant, fleet):
        state = fleet.state(backend)
        facts = {"backend": backend.name, "model": backend.model, "tier": backend.tier, "state": _word(state)}
        load = {"in_flight": state.in_flight, "wait_s": round(state.wait_s, 3), "headroom": state.headroom}
        found.append({**facts, "first_byte_ms": state.first_byte_ms, **(load if admin else {})})
    return found
