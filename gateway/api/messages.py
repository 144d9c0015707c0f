"""Anthropic's route that counts the tokens of a prompt without asking a model."""

from __future__ import annotations

from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.door import Door, json_response
from gateway.api.wire import by_name, check_json, check_length, decoded, read_body
from gateway.backends.fleet import Fleet
from gateway.context.count import Counter, encoding_of, family_factor
from gateway.context.measure import sizes
from gateway.dialects.messages_request import parse_prompt
from gateway.domain.request import Controls
from gateway.domain.tenant import Tenant
from gateway.settings.gateway import RequestLimits


class MessageRoutes:
    """Counted here, as the context room does, for whatever model: it costs nothing, and no prompt leaves the house."""

    def __init__(self, *, door: Door, counter: Counter, fleet: Fleet, limits: RequestLimits) -> None:
        self._counter, self._fleet, self._limits = counter, fleet, limits
        count = door.needs("inference")(self.count_tokens)
        self.routes = [Route("/v1/messages/count_tokens", count, methods=["POST"])]

    async def count_tokens(self, request: Request, tenant: Tenant) -> Response:
        """`{"input_tokens": n}`: exact for OpenAI's tokenizers, about right for the family of any other model."""
        headers, limit = by_name(request.scope["headers"]), self._limits.max_body_bytes
        check_json(headers)
        check_length(headers, limit)
        body = await read_body(request.receive, limit, self._limits.body_timeout)
        body = await decoded(body, headers.get(b"content-encoding", b""), limit)
        asked = parse_prompt(body, "", Controls(), headers)
        model = next((each.model for each in self._fleet.backends if each.name == asked.model), asked.model)
        counted = await sizes(asked, self._counter, encoding_of(model))
        return json_response({"input_tokens": ceil(counted.total * family_factor(model))})
