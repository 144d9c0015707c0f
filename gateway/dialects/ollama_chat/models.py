"""Lists and describes models in Ollama's format."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from gateway.dialects.client import VisibleModel
from gateway.dialects.ollama_chat.request import plain_name
from gateway.dialects.requests.fields import read_model
from gateway.errors import UnknownModel

_VERSION = "0.13.0"
"""The version of Ollama's API that the gateway reports. Editors refuse a version that they regard as too old."""
_UNKNOWN_DATE = "1970-01-01T00:00:00Z"
_FAMILY = "thriftgate"
_DETAILS = {
    "parent_model": "",
    "format": "",
    "family": _FAMILY,
    "families": [_FAMILY],
    "parameter_size": "",
    "quantization_level": "",
}
_ABILITIES = {"tools": "tools", "vision": "vision", "reasoning": "thinking"}
"""Name of a backend's capability → Ollama's name for this capability."""


def tags(models: Sequence[VisibleModel], _: dict[str, Any]) -> dict[str, Any]:
    """The answer to `GET /api/tags`: the list of models."""
    return {"models": [_listed(model.name) for model in models]}


def _listed(name: str) -> dict[str, Any]:
    digest = sha256(name.encode()).hexdigest()  # with the digest, clients notice that a model has changed
    return {"name": name, "model": name, "modified_at": _UNKNOWN_DATE, "size": 0, "digest": digest, "details": _DETAILS}


def show(models: Sequence[VisibleModel], asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to `POST /api/show`: the facts about one model. If a name stands for several models, all capabilities
    are listed. Raises UnknownModel, BadRequest."""
    name = plain_name(read_model({"model": asked.get("model") or asked.get("name")}))
    model = next((each for each in models if each.name == name), None)
    if model is None:
        raise UnknownModel(f"model {name!r} not found; GET /api/tags lists those that exist.", param="model")
    abilities = [told for ours, told in _ABILITIES.items() if not model.capabilities or ours in model.capabilities]
    info: dict[str, Any] = {"general.architecture": _FAMILY, "general.basename": name}
    if model.window_tokens:
        info[f"{_FAMILY}.context_length"] = model.window_tokens
    about = {"modelfile": "", "parameters": "", "template": "", "modified_at": _UNKNOWN_DATE, "details": _DETAILS}
    return {**about, "model_info": info, "capabilities": ["completion", *abilities]}


def version(_: Sequence[VisibleModel], __: dict[str, Any]) -> dict[str, Any]:
    """The answer to `GET /api/version`."""
    return {"version": _VERSION}
