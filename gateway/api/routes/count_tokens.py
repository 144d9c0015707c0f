"""The vendors' routes that count the tokens of a prompt without calling a model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.server.asgi import Pace, by_name, check_json, check_length, decoded, read_body
from gateway.api.server.caller import AsgiLine, unless_gone
from gateway.backends.fleet import Fleet
from gateway.context.attachments.beside import guesses
from gateway.context.attachments.vendors import vendor_of
from gateway.context.count import Counter, encoding_of, family_factor
from gateway.context.measure import sizes
from gateway.dialects.client import Count
from gateway.dialects.clients import CLIENTS
from gateway.dialects.requests.body_extent import check_extent
from gateway.dialects.requests.forwarding import check_forwarding
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.routing.aliases import permitted
from gateway.routing.candidates import may_go_to
from gateway.runtime.off_loop import OffLoop
from gateway.settings.gateway import RequestLimits


class CountRoutes:
    """Counts the tokens of a prompt. The backend counts if it is able and allowed to; otherwise the gateway counts."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        counter: Counter,
        fleet: Fleet,
        limits: RequestLimits,
        off_loop: OffLoop | None = None,
        decoding: OffLoop | None = None,
    ) -> None:
        self._counter, self._fleet, self._limits = counter, fleet, limits
        self._off_loop, self._decoding = off_loop or OffLoop(), decoding or OffLoop()
        self._pace = Pace.of(limits)
        opened = authenticator.needs("inference")
        self.routes = [
            Route(path, opened(partial(self._answer, count)), methods=["POST"])
            for client in CLIENTS.values()
            for count in client.counts
            for path in count.paths
        ]

    async def _answer(self, count: Count, request: Request, tenant: Tenant) -> Response:
        """Answer a request for a token count. Raises UnknownModel, Forbidden, BadRequest."""
        return json_response(count.answer(await self._count(count, request, tenant)))

    def _parse(
        self, count: Count, body: bytes, headers: Mapping[bytes, bytes], policy: Policy, model: str
    ) -> CompletionRequest:
        check_extent(body, self._limits.max_items)
        asked = count.parse(body, headers, model)
        check_forwarding(asked, policy)
        return asked

    async def _count(self, count: Count, request: Request, tenant: Tenant) -> int:
        """The number of input tokens of the prompt, counted by the backend or the gateway. The gateway's count is
        exact only for OpenAI's tokenizers.
        """
        headers, limit = by_name(request.scope["headers"]), self._limits.max_body_bytes
        check_json(headers)
        check_length(headers, limit)
        body = await read_body(request.receive, limit, self._pace)
        if coding := headers.get(b"content-encoding"):
            line = AsgiLine(request.receive)
            body = await unless_gone(line, decoded(body, coding, limit, self._decoding))
        model = request.path_params.get("model", "")
        asked = await self._off_loop.run(self._parse, count, body, headers, tenant.policy, model)
        named = permitted(asked.model, tenant.policy, self._fleet.backends, tenant.access)
        only = named.rule is None or len(named.backends) == 1
        backend = named.backends[0] if only and named.backends else None
        tokens = None
        if backend is not None and count.asks_backend and may_go_to(backend, tenant.policy.data):
            tokens = await self._fleet.count_tokens(backend, asked)
        if tokens is None:
            name = backend.model if backend else asked.model
            text = (await sizes(asked, self._counter, encoding_of(name))).total * family_factor(name)
            tokens = ceil(text) + sum(guesses(asked, vendor_of(name)).values())
        return tokens
