"""The names of one model at several vendors, from a packaged table (made by `python -m training.model_names`)."""

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
    """The name as the table has it: in lower case, and for Bedrock without its region."""
    return (_REGION.sub("", name) if kind == "bedrock" else name).lower()


@lru_cache(maxsize=1)
def _models() -> Mapping[tuple[str, str], str]:
    """(Kind, name) → model."""
    models = orjson.loads(PACKAGED.read_bytes())["models"]
    return {(kind, name): model for model, kinds in models.items() for kind, names in kinds.items() for name in names}


def model_of(backend: Backend) -> str:
    """The model that the backend serves, as the table names it; empty if the table does not know the backend's vendor
    or name. The name of a deployment is not used, because it is free text."""
    kind: str = backend.kind
    if kind in ("openai", "anthropic"):
        kind = _HOSTS.get(host_of(backend.base_url), "")
    return _models().get((kind, bare(kind, backend.model)), "")


def equal(backends: Sequence[Backend]) -> dict[str, list[Backend]]:
    """Model → backends that serve it under several vendors and have no `model_group`. Only models with at least two
    such backends."""
    found: dict[str, list[Backend]] = defaultdict(list)
    for backend in backends:
        if not backend.model_group and (model := model_of(backend)):
            found[model].append(backend)
    return {
        model: several for model, several in found.items() if len({(each.kind, each.model) for each in several}) > 1
    }


def grouped(backends: Sequence[Backend], model_groups: str) -> Sequence[Backend]:
    """`backends`, in which backends of one model have the model's name as `model_group` if the setting `model_groups`
    is `auto`. A model whose name is also the name of a backend gets no group."""
    if model_groups != "auto":
        return backends
    names = {each.name for each in backends}
    groups = {each.name: model for model, several in equal(backends).items() if model not in names for each in several}
    return [
        each.model_copy(update={"model_group": groups[each.name]}) if each.name in groups else each for each in backends
    ]
