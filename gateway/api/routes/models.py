"""`GET /` and `/v1/models`: the models that a key may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.query import whole_number
from gateway.backends.fleet import Fleet
from gateway.domain.backend import Backend
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, Forbidden, UnknownModel
from gateway.routing.aliases import permitted
from gateway.routing.candidates import may_go_to

UNKNOWN_DATE = "1970-01-01T00:00:00Z"
"""The creation date that Anthropic's documentation gives for an unknown date."""
_PAGE, _MOST = 20, 1000


def visible_models(tenant: Tenant, fleet: Fleet) -> list[tuple[str, str]]:
    """(Name, owner) of all models that a key may request: `auto`, the aliases in the key's policy, and the names,
    models and model groups of `visible_backends`."""
    found = {}
    for name, entry in {"auto": "", **tenant.policy.models}.items():
        if "*" not in name and (tenant.access is None or _open(name, tenant, fleet)):
            found[name] = entry if isinstance(entry, str) and name != "auto" else "thriftgate"
    for backend in visible_backends(tenant, fleet):
        found.setdefault(backend.name, backend.kind)
        found.setdefault(backend.model, backend.kind)
        if backend.model_group:
            found.setdefault(backend.model_group, "thriftgate")
    return list(found.items())


def visible_backends(tenant: Tenant, fleet: Fleet) -> list[Backend]:
    """The backends that a key may use. Backends to which the policy's `data` rules forbid sending prompts are left
    out.
    """
    access, data = tenant.access, tenant.policy.data
    return [each for each in fleet.backends if may_go_to(each, data) and not (access and access.excludes(each))]


def _open(name: str, tenant: Tenant, fleet: Fleet) -> bool:
    try:
        permitted(name, tenant.policy, fleet.backends, tenant.access)
    except (Forbidden, UnknownModel):
        return False
    return True


def _openai(name: str, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


class ModelRoutes:
    """The routes `GET /`, which needs no key, and `/v1/models`, which depends on the key. Clients that send
    `anthropic-version` get Anthropic's format.
    """

    def __init__(self, *, authenticator: Authenticator, fleet: Fleet) -> None:
        self._fleet = fleet
        inference = authenticator.needs("inference")
        self.routes = [
            Route("/", self.root),
            *(Route(f"{prefix}/models", inference(self.models)) for prefix in ("/v1", "")),
            *(Route(f"{prefix}/models/{{name:path}}", inference(self.model)) for prefix in ("/v1", "")),
        ]

    async def root(self, request: Request) -> Response:
        """Redirect a browser to the dashboard; tell any other client that the gateway is running."""
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("dashboard", 302, {"vary": "accept"})
        return json_response({"service": "thriftgate", "status": "live"})

    async def models(self, request: Request, tenant: Tenant) -> Response:
        found = visible_models(tenant, self._fleet)
        if "anthropic-version" in request.headers:
            return json_response(self._page(request, [name for name, _ in found]))
        return json_response({"object": "list", "data": [_openai(*pair) for pair in found]})

    async def model(self, request: Request, tenant: Tenant) -> Response:
        name = request.path_params["name"]
        found = visible_models(tenant, self._fleet)
        if tenant.policy.rule(name) is not None and _open(name, tenant, self._fleet):
            found.append((name, "thriftgate"))  # the name may match only a pattern in the policy
        for known, owner in found:
            if known == name:
                anthropic = "anthropic-version" in request.headers
                return json_response(self._anthropic(name) if anthropic else _openai(name, owner))
        raise UnknownModel(
            f"The model {name!r} does not exist here; GET /v1/models lists those that do.", param="model"
        )

    def _anthropic(self, name: str) -> dict[str, Any]:
        backend = next((each for each in self._fleet.backends if each.name == name), None)
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": UNKNOWN_DATE,
            "lifecycle": "active",
            "max_input_tokens": backend and backend.window_tokens,
            "max_tokens": backend and backend.max_output_tokens,
            "capabilities": None,
            "line": None,
            "deprecated_at": None,
            "retires_at": None,
        }

    def _page(self, request: Request, names: Sequence[str]) -> dict[str, Any]:
        """The page of `names` that `limit`, `after_id` and `before_id` select. Raises BadRequest."""
        asked = request.query_params
        limit = whole_number(asked, "limit", _PAGE, _MOST)
        after, before = (_place(names, asked.get(name), name) for name in ("after_id", "before_id"))
        rest = names[0 if after is None else after + 1 : before]
        page = rest[-limit:] if before is not None and after is None else rest[:limit]
        return {
            "data": [self._anthropic(name) for name in page],
            "has_more": len(page) < len(rest),
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
        }


def _place(names: Sequence[str], wanted: str | None, param: str) -> int | None:
    if wanted is None:
        return None
    if wanted not in names:
        raise BadRequest(f"{param} must name a model of the list.", param=param)
    return names.index(wanted)
