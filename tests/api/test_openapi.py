"""The OpenAPI document says what is served: by comparison with the routes, and by generated requests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis

from gateway.api.openapi.components import REQUEST_HEADERS, RESPONSE_HEADERS
from gateway.api.openapi.document import document
from gateway.api.openapi.operation import template
from gateway.api.openapi.operations import INFERENCE, OPERATIONS
from gateway.dialects.clients import PATHS
from loadtests.ports import free_port
from tests.docs.markdown import REFERENCE, first_column
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider

CONFIG = """\
backends:
  - {{name: one, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: m, strength: small, window_tokens: 8000,
      capabilities: [tools, json_schema, vision], price: {{input: 1, output: 2}}}}
  - {{name: two, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: m, strength: large, window_tokens: 8000,
      capabilities: [tools, json_schema, vision], price: {{input: 2, output: 4}}}}
  - {{name: three, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: m, location: hosted,
      window_tokens: 8000, price: {{input: 3, output: 6}}}}
local_model: {{enabled: false}}
admin_api: {admin}
"""
POLICIES = {"plain": "passthrough: [audio, images, moderations, rerank]\ndata: {store_prompts: true}\n"}
CHECKS = """\
[checks]
positive_data_acceptance = { enabled = false }  # ids and names that match a schema need not exist
not_a_server_error = { expected-statuses = ["2xx", "3xx", "4xx", "504"] }  # 504: x-thriftgate-cache: only
"""


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("openapi") / "home"
    with GatewayProcess(home, CONFIG.format(port=port, admin="true"), POLICIES) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port, keep=10) as scripted:
        yield scripted


def described(gateway: GatewayProcess) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{gateway.base}/openapi.json").json()
    return found


@pytest.mark.heavy
def test_every_route_and_nothing_else_is_described(gateway: GatewayProcess) -> None:
    paths = described(gateway)["paths"]
    operations = {(method.upper(), path) for path, found in paths.items() for method in found}
    assert operations == set(OPERATIONS) | {("POST", path) for path in INFERENCE}
    assert set(INFERENCE) == {path for path in PATHS if f"/v1{path}" not in PATHS}


@pytest.mark.heavy
def test_routes_of_the_admin_api_are_described_where_they_are_served(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "home", CONFIG.format(port=1, admin="false"), POLICIES) as process:
        paths = described(process)["paths"]
    assert "/v1/chat/completions" in paths
    assert not [path for path in paths if path.startswith("/admin")]


def whole() -> dict[str, Any]:
    return document(OPERATIONS, "1.2.3")


def test_it_is_a_valid_document_whose_operations_have_names_of_their_own() -> None:
    schemathesis.openapi.from_dict(whole()).validate()
    ids = [operation["operationId"] for found in whole()["paths"].values() for operation in found.values()]
    assert len(ids) == len(set(ids)) == len(OPERATIONS) + len(INFERENCE)


def test_headers_are_those_of_the_reference() -> None:
    assert set(REQUEST_HEADERS) == set(first_column("request-headers", REFERENCE / "headers.md"))
    told = set(first_column("response-headers", REFERENCE / "headers.md"))
    assert set(RESPONSE_HEADERS) == told - {"request-id", "x-ratelimit-limit-requests"}


def test_a_path_with_a_converter_is_a_template() -> None:
    assert template("/v1/models/{name:path}") == "/v1/models/{name}"


@pytest.mark.heavy
@pytest.mark.parametrize("key", ["all", "inference", "unknown", "none"])
@pytest.mark.timeout(600)
async def test_generated_requests_are_answered_as_described(
    gateway: GatewayProcess, provider: Provider, tmp_path: Path, key: str, pytestconfig: pytest.Config
) -> None:
    """For long: --openapi-examples 50. Only a key that may do everything meets the boundaries of every value."""
    examples: int = pytestconfig.getoption("--openapi-examples")
    phases = "examples,coverage,fuzzing" if key == "all" or examples > 2 else "examples,fuzzing"
    scopes = {"all": ("inference", "usage", "admin"), "inference": ("inference",)}.get(key, ())
    secret = await gateway.key("plain", *(word for scope in scopes for word in ("--scope", scope))) if scopes else ""
    config = tmp_path / "schemathesis.toml"
    config.write_text(CHECKS)
    given = {"none": ()}.get(key, ("--header", f"Authorization: Bearer {secret or 'tg-nobody'}"))
    ran = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config)),
        *("run", f"{gateway.base}/openapi.json", "--seed", "1", "--generation-database", "none"),
        *("--max-examples", str(examples), "--phases", phases),
        *("--exclude-operation-id", "revokeTeamKeys", "--exclude-operation-id", "revokeKey"),  # its own key
        *("--no-color", "--continue-on-failure", *given),
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "120"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await ran.communicate()
    assert ran.returncode == 0, output.decode()[-6000:]
    assert "Traceback" not in gateway.log
