"""The client dialects, and the paths on which each dialect is served."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from gateway.dialects.client import Client, ClientDialect, ConversationDialect
from gateway.dialects.facts import FACTS, REGISTERED
from gateway.domain.policy import PassThrough
from gateway.domain.request import DialectName

CLIENTS: Mapping[DialectName, Client] = {
    facts.FACTS.name: import_module(f"{facts.__package__}.client").CLIENT for facts in REGISTERED
}
"""Name of a dialect → its parts. Each package defines these parts in its `client.py`."""
PATHS: Mapping[str, ClientDialect] = {
    path: dialect for client in CLIENTS.values() for path, dialect in client.paths.items()
}
"""Path of an inference endpoint whose path contains no model → client dialect. OpenAI's paths are also served without
`/v1`, because the base URLs of some vendors already contain `/v1`."""
CONVERSATIONS: Mapping[str, ConversationDialect] = {
    path: client.conversation for client in CLIENTS.values() if client.conversation for path in client.paths
}
"""Path → client dialect, for the paths whose requests repeat the conversation."""
CONVERSING: Mapping[str, DialectName] = {
    path: name for name, client in CLIENTS.items() if client.conversation for path in client.paths
}
"""Path → name of the client dialect, for the paths whose requests repeat the conversation."""
DIALECTS: Mapping[DialectName, ClientDialect] = {
    name: client.dialect for name, client in CLIENTS.items() if not FACTS[name].opaque
}
"""Dialects whose answers can be cached."""
PASSED_THROUGH: Mapping[str, PassThrough] = {
    path: permission for client in CLIENTS.values() for path, permission in client.permissions.items()
}
"""Path → the permission that a policy must grant for this path."""
_FINDERS = tuple(client.at for client in CLIENTS.values())
_SHAPERS = tuple(client.shapes for client in CLIENTS.values())
_LONGEST_PATH = max(map(len, PATHS))
_DEFAULT = CLIENTS["openai_chat"].dialect


def at(path: str) -> ClientDialect | None:
    """The dialect of the inference endpoint at `path`; None if no endpoint has this path. `path` may contain the name
    of a model."""
    if found := PATHS.get(path):
        return found
    return next((found for find in _FINDERS if (found := find(path))), None)


def of_path(path: str) -> ClientDialect:
    """The dialect for errors and other answers to requests at `path` or below it. OpenAI chat for an unknown path."""
    if shaped := next((found for shape in _SHAPERS if (found := shape(path))), None):
        return shaped
    path = path[: _LONGEST_PATH + 1]  # a longer path would be copied once for each slash
    while path:
        if known := PATHS.get(path):
            return known
        path, _, _ = path.rpartition("/")
    return _DEFAULT
