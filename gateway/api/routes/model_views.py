"""The routes of vendors' APIs that describe the models which a key may use."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.models import visible_models
from gateway.api.server.asgi import read_object
from gateway.backends.fleet import Fleet
from gateway.dialects.client import View, VisibleModel
from gateway.dialects.clients import CLIENTS
from gateway.domain.tenant import Tenant


class ModelViews:
    """The routes that describe models as vendors' APIs do. There is one route for each `View` that a client dialect
    defines."""

    def __init__(self, *, authenticator: Authenticator, fleet: Fleet) -> None:
        self._fleet = fleet
        opened = authenticator.needs("inference")
        self.routes = [
            Route(view.path, opened(partial(self._answer, view)), methods=[view.method])
            for client in CLIENTS.values()
            for view in client.views
        ]

    async def _answer(self, view: View, request: Request, tenant: Tenant) -> Response:
        """Describe the models in the format of `view`. Raises UnknownModel, BadRequest."""
        asked = await read_object(request) if view.method == "POST" else {}
        backends = {name: each for each in self._fleet.backends for name in (each.model, each.name)}
        models = [
            VisibleModel(
                name,
                backends[name].window_tokens if name in backends else None,
                backends[name].capabilities if name in backends else frozenset(),
            )
            for name, _ in visible_models(tenant, self._fleet)
        ]
        return json_response(view.answer(models, asked))
