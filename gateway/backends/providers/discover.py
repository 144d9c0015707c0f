"""Finds the backends. They are the entries of gateway.yaml. If it has none, they are backends for the API keys in the
environment and for the model servers on this machine."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import SecretStr

from gateway.backends.http.client import connect
from gateway.backends.providers.hosted import PROVIDERS
from gateway.backends.providers.model_size import size_of
from gateway.domain.backend import Backend, Capability, PriceEntry
from gateway.errors import BackendError
from gateway.settings.environment import provider_keys
from gateway.settings.gateway import GatewayConfig, LocalModelSettings

log = logging.getLogger(__name__)

USUAL_PORTS: Mapping[int, str] = {
    11434: "ollama",
    8000: "vllm",
    8081: "llamacpp",
    8033: "llamacpp",
    1234: "lmstudio",
}
"""Port → name of the model server that uses this port by default."""

_LOOK_S = 0.5
_MOST_BYTES = 2**20
_MOST_MODELS = 8
"""Maximum number of models that are used of one model server."""
_NO_CHAT = re.compile(r"embed|rerank|whisper|\btts\b|\bbge\b|minilm|clip\b", re.IGNORECASE)
_CONFIDENT: frozenset[Capability] = frozenset({"tools", "json_schema", "logprobs"})
_CAPABLE: frozenset[Capability] = frozenset({"tools", "json_schema"})
USUAL_TOKENS_PER_SECOND = 40.0
"""Assumed speed of a found model whose size is unknown. Such a model is regarded as small."""
_PACKAGED = ("window_tokens", "max_output_tokens", "capabilities", "price", "concurrent", "slots")
"""Facts of the local model that an entry of gateway.yaml may leave out."""


async def backends_of(config: GatewayConfig, local_model_url: str | None, simulate: bool = False) -> list[Backend]:
    """The backends of gateway.yaml. If gateway.yaml has no list of backends, the backends that `discover` finds.

    `local_model_url`: URL for entries without `base_url`, which mean the local model; None: these entries are left
    out.
    """
    if config.backends is None:
        return await discover(config, local_model_url, simulate)
    found = []
    for backend in config.backends:
        if not backend.managed:
            found.append(backend)
        elif local_model_url:
            found.append(_completed(backend, _packaged(local_model_url, config.local_model)))
        else:
            log.warning(
                "backend %s is left out: it has no base_url, so it is the local model, which does not run here "
                "(`thriftgate doctor` says whether it is installed)", backend.name
            )  # fmt: skip
    return found


def _completed(backend: Backend, packaged: Backend) -> Backend:
    """Complete `backend`, an entry without `base_url`, from `packaged`, the local model. The address is always that of
    the local model. Other facts are taken from it only if gateway.yaml does not set them."""
    known = {name: getattr(packaged, name) for name in _PACKAGED if name not in backend.model_fields_set}
    if backend.strength is None and "tier" not in backend.model_fields_set:
        known["tier"] = packaged.tier
    return backend.model_copy(update={"base_url": packaged.base_url, **known})


async def discover(
    config: GatewayConfig,
    local_model_url: str | None,
    simulate: bool,
    *,
    ports: Mapping[int, str] = USUAL_PORTS,
) -> list[Backend]:
    """Find the backends of this machine, in at most half a second. Hosted backends come first, and names are
    unique.

    `simulate`: if only small models were found, add a simulated backend, and use the packaged local model only for
    requests that name it. `ports`: port → name of a model server. Unknown prices and context windows come from the
    catalogue of models.
    """
    found = [backend for provider, key in provider_keys().items() for backend in _hosted(provider, key)]
    ours = {config.listen.port, urlsplit(local_model_url or "").port}
    hour_usd = config.discovery.machine_hour_usd
    servers = await asyncio.gather(*(_server(port, name, hour_usd) for port, name in ports.items() if port not in ours))
    for backend in (backend for server in servers for backend in server):
        if all(backend.name != other.name for other in found):
            found.append(backend)
    if local_model_url:
        packaged = _packaged(local_model_url, config.local_model)
        found.append(packaged.model_copy(update={"only_named": True}) if simulate else packaged)
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


def packaged_name(settings: LocalModelSettings) -> str:
    """The name of the backend for the local model that the supervisor starts."""
    return f"local-{_clean(PurePath(settings.gguf).stem.lower() if settings.gguf else 'smollm2')}"


def _packaged(url: str, settings: LocalModelSettings) -> Backend:
    """The local model that the supervisor starts."""
    name = PurePath(settings.gguf).stem.lower() if settings.gguf else ""
    return Backend(
        name=packaged_name(settings),
        kind="local",
        base_url=url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1",
        model=name or "smollm2-135m-instruct",
        tier="small",
        window_tokens=settings.window_tokens,
        max_output_tokens=settings.window_tokens // 2,
        capabilities=frozenset({"logprobs"}),
        price=PriceEntry(machine_hour_usd=settings.machine_hour_usd),
        concurrent=settings.slots * 8,  # the server has its own queue
        slots=settings.slots,
    )


async def _server(port: int, name: str, hour_usd: Decimal) -> list[Backend]:
    """The backends of a model server on `port`; empty if there is none."""
    origin = f"http://127.0.0.1:{port}"
    models = _models(await _get(origin, "/v1/models", name))
    if models and name == "ollama":
        sizes = _sizes(await _get(origin, "/api/tags", name))
        models = [{**model, "details": sizes.get(model["id"])} for model in models]
    return [_served(f"{origin}/v1", name, model, hour_usd) for model in models]


async def _get(origin: str, path: str, name: str) -> bytes:
    """The body of an answer with status 200; empty if there is no such answer."""
    client = connect(origin, concurrent=1, name=name)
    try:
        deadline = asyncio.get_running_loop().time() + _LOOK_S
        response = await client.request(
            "GET", path, [(b"accept", b"application/json")], b"", deadline=deadline, first_byte_timeout=_LOOK_S
        )
        try:
            return await response.read(_MOST_BYTES) if response.status == 200 else b""
        finally:
            await response.aclose()
    except BackendError:
        return b""
    finally:
        await client.aclose()


def _sizes(body: bytes) -> dict[str, Any]:
    """Model name → details of the model. `body`: the answer to Ollama's `GET /api/tags`."""
    try:
        listed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    models = listed.get("models") if isinstance(listed, dict) else None
    known = [model for model in (models if isinstance(models, list) else ()) if isinstance(model, dict)]
    return {str(model.get("name")): model.get("details") for model in known}


def _models(body: bytes) -> list[dict[str, Any]]:
    """The chat models in the body of `GET /v1/models`; empty if the body is not a list of models."""
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


def _served(url: str, server: str, model: dict[str, Any], hour_usd: Decimal) -> Backend:
    window, size = model.get("max_model_len"), size_of(model)
    return Backend(
        name=f"{server}/{_clean(PurePath(model['id']).name if model['id'].startswith('/') else model['id'])}",
        kind="openai",
        base_url=url,
        model=model["id"],
        strength="small" if size is None else size.strength,
        window_tokens=window if isinstance(window, int) and window > 0 else None,
        capabilities=_CONFIDENT if server in ("vllm", "llamacpp") else _CAPABLE,
        price=PriceEntry(
            machine_hour_usd=hour_usd,
            tokens_per_second=USUAL_TOKENS_PER_SECOND if size is None else size.tokens_per_second,
            billing="busy",
        ),
    )


def found_text(backend: Backend) -> str:
    """A text for people that lists the assumed facts about a found model server. Empty if nothing was assumed."""
    price = backend.price
    if price is None or price.billing != "busy":
        return ""
    return (
        f"{backend.name}: {backend.tier}, {price.machine_hour_usd} USD per hour in which it answers, "
        f"{price.tokens_per_second:g} tokens a second until measured (assumed by its parameters; set "
        "discovery.machine_hour_usd, or list it under backends)"
    )


def _clean(name: str) -> str:
    """Return `name` with `-` in place of characters that backend names must not contain."""
    return re.sub(r"[^A-Za-z0-9._:/-]", "-", name)
