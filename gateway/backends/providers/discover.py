"""Finds backends if gateway.yaml lists none: from API keys in the environment, and servers on this machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import SecretStr

from gateway.backends.http.client import connect
from gateway.backends.providers.hosted import PROVIDERS
from gateway.domain.backend import Backend, Capability, PriceEntry
from gateway.errors import BackendError
from gateway.settings.environment import provider_keys
from gateway.settings.gateway import GatewayConfig, LocalModelSettings

USUAL_PORTS: Mapping[int, str] = {
    11434: "ollama",
    8000: "vllm",
    8081: "llamacpp",
    8033: "llamacpp",
    1234: "lmstudio",
}
"""Default ports of model servers."""

_LOOK_S = 0.5
_MOST_BYTES = 2**20
_MOST_MODELS = 8
"""Maximum models that are used of one server."""
_NO_CHAT = re.compile(r"embed|rerank|whisper|\btts\b|\bbge\b|minilm|clip\b", re.IGNORECASE)
_CONFIDENT: frozenset[Capability] = frozenset({"tools", "json_schema", "logprobs"})
_CAPABLE: frozenset[Capability] = frozenset({"tools", "json_schema"})


async def discover(
    config: GatewayConfig,
    local_model_url: str | None,
    simulate: bool,
    *,
    ports: Mapping[int, str] = USUAL_PORTS,
) -> list[Backend]:
    """Find the backends of this machine, hosted ones first, with unique names. Takes at most half a second.

    `simulate`: if only small models were found, add a simulated backend. Prices and windows that are unknown here come
    from the catalogue.
    """
    found = [backend for provider, key in provider_keys().items() for backend in _hosted(provider, key)]
    ours = {config.listen.port, urlsplit(local_model_url or "").port}
    servers = await asyncio.gather(*(_server(port, name) for port, name in ports.items() if port not in ours))
    for backend in (backend for server in servers for backend in server):
        if all(backend.name != other.name for other in found):
            found.append(backend)
    if local_model_url:
        found.append(_packaged(local_model_url, config.local_model))
    if simulate and all(backend.tier == "small" for backend in found):
        found.append(
            Backend(
                name="simulated-large",
                kind="simulated",
                model="simulated-large",
                tier="large",
                window_tokens=131072,
                max_output_tokens=4096,
            )
        )
    return found


def _hosted(provider: str, key: str) -> Iterable[Backend]:
    entry = PROVIDERS.get(provider)
    if entry is None:
        return
    if entry.without_litellm and find_spec("litellm") is None:
        entry = replace(entry, kind=entry.without_litellm, prefix="")
    for model in entry.models:
        yield Backend(
            name=model if entry.plain_names else f"{provider}/{model}",
            kind=entry.kind,
            base_url=entry.base_url,
            api_key=SecretStr(key),
            model=entry.prefix + model,
            tier="hosted",
        )


def _packaged(url: str, settings: LocalModelSettings) -> Backend:
    """The local model that the supervisor starts."""
    name = PurePath(settings.gguf).stem.lower() if settings.gguf else "smollm2"
    return Backend(
        name=f"local-{_clean(name)}",
        kind="local",
        base_url=url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1",
        model=name if settings.gguf else "smollm2-135m-instruct",
        tier="small",
        window_tokens=settings.window_tokens,
        max_output_tokens=settings.window_tokens // 2,
        capabilities=frozenset({"logprobs"}),
        price=PriceEntry(machine_hour_usd=settings.machine_hour_usd),
        concurrent=settings.slots * 8,  # the server has its own queue
        slots=settings.slots,
    )


async def _server(port: int, name: str) -> list[Backend]:
    """The backends of a model server on `port`; empty if there is none."""
    url = f"http://127.0.0.1:{port}/v1"
    client = connect(url, concurrent=1, name=name)
    try:
        deadline = asyncio.get_running_loop().time() + _LOOK_S
        response = await client.request(
            "GET", "/models", [(b"accept", b"application/json")], b"", deadline=deadline, first_byte_timeout=_LOOK_S
        )
        try:
            body = await response.read(_MOST_BYTES) if response.status == 200 else b""
        finally:
            await response.aclose()
        return [_served(url, name, model) for model in _models(body)]
    except BackendError:
        return []
    finally:
        await client.aclose()


def _models(body: bytes) -> list[dict[str, Any]]:
    """The chat models in the body of `GET /v1/models`; empty if the body is something else."""
    try:
        listed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    data = listed.get("data") if isinstance(listed, dict) else None
    models = [
        model
        for model in (data if isinstance(data, list) else ())
        if isinstance(model, dict)
        and isinstance(model.get("id"), str)
        and model["id"]
        and model.get("owned_by") != "thriftgate"
        and not _NO_CHAT.search(model["id"])
    ]
    return models[:_MOST_MODELS]


def _served(url: str, server: str, model: dict[str, Any]) -> Backend:
    window = model.get("max_model_len")
    return Backend(
        name=f"{server}/{_clean(PurePath(model['id']).name if model['id'].startswith('/') else model['id'])}",
        kind="openai",
        base_url=url,
        model=model["id"],
        tier="large",
        window_tokens=window if isinstance(window, int) and window > 0 else None,
        capabilities=_CONFIDENT if server in ("vllm", "llamacpp") else _CAPABLE,
    )


def _clean(name: str) -> str:
    """`name`, with characters replaced that backend names must not contain."""
    return re.sub(r"[^A-Za-z0-9._:/-]", "-", name)
