"""Anthropic's `count_tokens`: counts a prompt's tokens without calling a model."""

from __future__ import annotations

from collections.abc import Mapping
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
from gateway.dialects.anthropic_messages.request import parse_prompt
from gateway.dialects.gemini_generate.request import parse_counted
from gateway.dialects.requests.body_extent import check_extent
from gateway.dialects.requests.forwarding import check_forwarding
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Tenant
from gateway.routing.aliases import permitted
from gateway.routing.candidates import may_go_to
from gateway.runtime.off_loop import OffLoop
from gateway.runtime.tasks import Tasks
from gateway.settings.gateway import RequestLimits


class MessageRoutes:
    """Endpoints that count tokens. If the model is Anthropic's and the prompt may be sent to it, the backend counts;
    otherwise the gateway counts."""

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
        self._pace, self._watchers = Pace.of(limits), Tasks()
        opened = authenticator.needs("inference")
        self.routes = [
            Route("/v1/messages/count_tokens", opened(self.count_tokens), methods=["POST"]),
            *[
                Route(f"/{version}/models/{{model:path}}:countTokens", opened(self.count_geminis), methods=["POST"])
                for version in ("v1", "v1beta")
            ],
        ]

    def _parse(self, body: bytes, headers: Mapping[bytes, bytes], policy: Policy, model: str) -> CompletionRequest:
        """The parsed request. `model`: from the path of a Gemini request; empty for an Anthropic request."""
        check_extent(body, self._limits.max_items)
        if model:
            asked = parse_counted(body, headers, model=model)
        else:
            asked = parse_prompt(body, "", Controls(), headers)
        check_forwarding(asked, policy)
        return asked

    async def count_tokens(self, request: Request, tenant: Tenant) -> Response:
        """The answer `{"input_tokens": n}`. Raises UnknownModel, Forbidden."""
        return json_response({"input_tokens": await self._count(request, tenant)})

    async def count_geminis(self, request: Request, tenant: Tenant) -> Response:
        """The answer `{"totalTokens": n}`. Raises UnknownModel, Forbidden."""
        return json_response({"totalTokens": await self._count(request, tenant, request.path_params["model"])})

    async def _count(self, request: Request, tenant: Tenant, model: str = "") -> int:
        """The number of tokens. The gateway's own count is exact for OpenAI's tokenizers and approximate for others."""
        headers, limit = by_name(request.scope["headers"]), self._limits.max_body_bytes
        check_json(headers)
        check_length(headers, limit)
        body = await read_body(request.receive, limit, self._pace)
        if coding := headers.get(b"content-encoding"):
            line = AsgiLine(request.receive, self._watchers)
            body = await unless_gone(line, decoded(body, coding, limit, self._decoding))
        asked = await self._off_loop.run(self._parse, body, headers, tenant.policy, model)
        named = permitted(asked.model, tenant.policy, self._fleet.backends, tenant.access)
        only = named.rule is None or len(named.backends) == 1
        backend = named.backends[0] if only and named.backends else None
        tokens = None
        if backend is not None and not model and may_go_to(backend, tenant.policy.data):
            tokens = await self._fleet.count_tokens(backend, asked)
        if tokens is None:
            name = backend.model if backend else asked.model
            text = (await sizes(asked, self._counter, encoding_of(name))).total * family_factor(name)
            tokens = ceil(text) + sum(guesses(asked, vendor_of(name)).values())
        return tokens
