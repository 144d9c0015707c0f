"""The gateway that is recorded: its configuration, its teams and their keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.e2e.gateway_process import GatewayProcess
from tests.recorded.case import KINDS, MODELS, Case, Server, Spoken
from tests.support.waiting import until

PROVIDER_KEY = "sk-recorded-provider-key"
"""Of every backend: no run differs from another by it."""
WRONG_KEY = "tg-of-nobody-at-all-00000000000000000000000"
_UNCACHED = "cache: {enabled: false}\n"
_BUDGET = "window: month, name: tiny"
TEAMS: dict[str, str] = {
    "plain": f"{_UNCACHED}context: {{enabled: false}}\npassthrough: [audio, images, moderations, rerank]\n",
    "closed": _UNCACHED,
    "listed": f"{_UNCACHED}passthrough: [audio]\n",
    "spent": f"{_UNCACHED}budget: {{limit_usd: 0.00011, {_BUDGET}}}\n",
    "warned": f"{_UNCACHED}budget: {{limit_usd: 0.00003, hard: false, {_BUDGET}}}\n",
    "truncated": f"{_UNCACHED}budget: {{limit_usd: 0.0005, on_exhausted: truncate, {_BUDGET}}}\n",
    "slow": f"{_UNCACHED}limits: {{requests_per_minute: 2}}\n",
    "few-tokens": f"{_UNCACHED}limits: {{tokens_per_minute: 60}}\n",
    "short": f"{_UNCACHED}context: {{max_input_tokens: 60}}\n",
    "at-home": f"{_UNCACHED}data: {{hosted: forbidden}}\n",
    "regional": f"{_UNCACHED}data: {{regions: [eu]}}\n",
    "standard-tier": f"{_UNCACHED}limits: {{service_tiers: []}}\n",
    "restricted": f"{_UNCACHED}allowed_models: [restricted.open]\n",
    "routed": f"{_UNCACHED}models: {{pair: [routed.first, routed.second], alias: routed.second}}\n",
    "storing": f"{_UNCACHED}data: {{store_prompts: true}}\n",
    "cached": "cache: {semantic: {enabled: false}}\ncontext: {enabled: false}\n",
    "shown": "models: {mine: shown-chat}\n",
}
"""Team → its policy. Besides there is `wrong`, which sends a key that does not exist."""

_CONFIG = """\
local_model: {enabled: false}
admin_api: true
trials: {cache_checks: 0}
state: {timeout: 10s}
requests: {max_body_bytes: 65536, max_items: 20000, lag: 30s}
telemetry: {access_log: false}
backends:
"""
"""Generous where a busy machine would change an answer: a slow state server degrades, a late event loop refuses."""


def servers_of(cases: Iterable[Case]) -> dict[str, Server]:
    """Raises ValueError for two different servers of one name."""
    found: dict[str, Server] = {}
    for server in (server for case in cases for server in case.servers):
        if found.setdefault(server.name, server) != server:
            raise ValueError(f"two different servers are called {server.name}")
    return found


def config(servers: Iterable[Server], roots: Mapping[Spoken, str]) -> str:
    """gateway.yaml with a backend for each of `servers`, whose providers are at `roots`."""
    return _CONFIG + "".join(_backend(server, roots[server.speaks]) for server in servers)


def _backend(server: Server, root: str) -> str:
    teams = f"teams: [{server.open_to}], " if server.open_to else ""
    return (
        f'  - {{name: {server.name}, {server.kind or KINDS[server.speaks]}, base_url: "{root}/{server.name}/v1", '
        f"model: {server.model or MODELS[server.speaks]}, api_key: env:PROVIDER_KEY, metrics: false, {teams}"
        f"price: {server.price}, {server.more}}}\n"
    )


def gateway(home: Path, servers: Iterable[Server], roots: Mapping[Spoken, str]) -> GatewayProcess:
    """Not started yet. One worker, so that what one exchange stores is there for the next."""
    return GatewayProcess(home, config(servers, roots), TEAMS, {"PROVIDER_KEY": PROVIDER_KEY})


async def keys(process: GatewayProcess, teams: Iterable[str]) -> dict[str, str]:
    """A key of each team, made over the admin API, which takes a fraction of what a command takes."""
    admin = await process.key("plain", "--scope", "admin")
    found = {"wrong": WRONG_KEY}
    async with httpx.AsyncClient(base_url=process.base, headers={"authorization": f"Bearer {admin}"}) as http:
        for team in sorted(set(teams) - {"wrong", ""}):
            made = await http.post("/admin/keys", json={"team": team})
            found[team] = _object(made)["key"]
        for team in found.keys() - {"wrong"}:
            await _until_known(http, found[team])
    return found


async def _until_known(http: httpx.AsyncClient, key: str) -> None:
    """Workers hear of a new key a moment after it was made."""

    async def known() -> bool:
        return (await http.get("/v1/models", headers={"authorization": f"Bearer {key}"})).status_code != 401

    await until(known)


def _object(response: httpx.Response) -> dict[str, Any]:
    response.raise_for_status()
    found: dict[str, Any] = orjson.loads(response.content)
    return found
