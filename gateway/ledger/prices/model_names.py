"""Knows which names at several vendors mean the same model. The table of names is packaged (made by `python -m
training.model_names`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import orjson

from gateway.domain.backend import Backend
from gateway.domain.routing.whereabouts import host_of

PACKAGED = Path(__file__).with_name("model_names.json")
_REGION = re.compile(r"^(?:arn:[^/]*/)?(?:(?:us|eu|apac|au|jp|ca|us-gov|global)\.)?")
_HOSTS = {"api.openai.com": "openai", "openrouter.ai": "openrouter", "api.anthropic.com": "anthropic"}
"""Host → kind in the table, for backends whose kind is not bound to one vendor."""


def bare(kind: str, name: str) -> str:
    """The model's name in the table's spelling: in lower case and, for Bedrock, without the region."""
    return (_REGION.sub("", name) if kind == "bedrock" else name).lower()


@lru_cache(maxsize=1)
def _models() -> Mapping[tuple[str, str], str]:
    """The packaged table: (kind of backend, name of the model) → model."""
    models = orjson.loads(PACKAGED.read_bytes())["models"]
    return {(kind, name): model for model, kinds in models.items() for kind, names in kinds.items() for name in names}


def model_of(backend: Backend) -> str:
    """The model that the backend serves, under its name in the table. Empty if the table does not have the backend's
    vendor or model. A deployment's own name is not searched, because it is free text."""
    kind: str = backend.kind
    if kind in ("openai", "anthropic"):
        kind = _HOSTS.get(host_of(backend.base_url), "")
    return _models().get((kind, bare(kind, backend.model)), "")


def equal(backends: Sequence[Backend]) -> dict[str, list[Backend]]:
    """Find the models that are called at several vendors, as model → backends. Backends with a `model_group` are left
    out."""
    found: dict[str, list[Backend]] = defaultdict(list)
    for backend in backends:
        if not backend.model_group and (model := model_of(backend)):
            found[model].append(backend)
    return {
        model: several for model, several in found.items() if len({(each.kind, each.model) for each in several}) > 1
    }


def grouped(backends: Sequence[Backend], model_groups: str) -> Sequence[Backend]:
    """Put backends that serve the same model into one `model_group`, and return all backends. The group has the model's
    name. If a backend already has this name, the model gets no group. If the setting `model_groups` is not `auto`,
    nothing changes."""
    if model_groups != "auto":
        return backends
    names = {each.name for each in backends}
    groups = {each.name: model for model, several in equal(backends).items() if model not in names for each in several}
    return [
        each.model_copy(update={"model_group": groups[each.name]}) if each.name in groups else each for each in backends
    ]
