"""The client dialects, and the paths on which each dialect is served."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from gateway.dialects.client import Client, ClientDialect
from gateway.dialects.facts import FACTS, REGISTERED
from gateway.domain.policy import PassThrough
from gateway.domain.request import DialectName

CLIENTS: Mapping[DialectName, Client] = {
    facts.FACTS.name: import_module(f"{facts.__package__}.client").CLIENT for facts in REGISTERED
}
"""By name. Each package registers itself in its `client.py`."""
PATHS: Mapping[str, ClientDialect] = {
    path: dialect for client in CLIENTS.values() for path, dialect in client.paths.items()
}
"""Inference paths that do not name a model. OpenAI's also exist without `/v1`, because some vendors' base URLs already
contain it."""
DIALECTS: Mapping[DialectName, ClientDialect] = {
    name: client.dialect for name, client in CLIENTS.items() if not FACTS[name].opaque
}
"""Dialects whose answers can be cached."""
PASSED_THROUGH: Mapping[str, PassThrough] = {
    path: permission for client in CLIENTS.values() for path, permission in client.permissions.items()
}
"""Path → permission that a policy must grant for it."""
_FINDERS = tuple(client.at for client in CLIENTS.values())
_SHAPERS = tuple(client.shapes for client in CLIENTS.values())
_DEFAULT = CLIENTS["openai_chat"].dialect


def at(path: str) -> ClientDialect | None:
    """The dialect of the inference endpoint at `path`, which may contain a model's name; None: there is none."""
    if found := PATHS.get(path):
        return found
    return next((found for find in _FINDERS if (found := find(path))), None)


def of_path(path: str) -> ClientDialect:
    """The dialect for answering requests at `path` or below it. For unknown paths, it is OpenAI chat."""
    if shaped := next((found for shape in _SHAPERS if (found := shape(path))), None):
        return shaped
    while path:
        if known := PATHS.get(path):
            return known
        path, _, _ = path.rpartition("/")
    return _DEFAULT
