"""compose.yaml as Docker's own compose reads it, without an engine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from tests.deploy.gateway_files import CLOSING_S, POLICIES, checked, drain_s, typed
from tests.deploy.queries import DEPLOY


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All services, from a copy in which the secrets were made."""
    copy = tmp_path_factory.mktemp("compose") / "deploy"
    shutil.copytree(DEPLOY, copy, ignore=shutil.ignore_patterns("secrets"))
    shutil.copytree(POLICIES, copy.parent / "policies")
    for _ in range(2):
        subprocess.run(["sh", str(copy / "compose/secrets.sh")], check=True, timeout=10)
    compose = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    command = [*compose, "-f", str(copy / "compose.yaml"), "--profile", "gpu", "config", "--format", "json"]
    found: dict[str, Any] = orjson.loads(subprocess.check_output(command, timeout=15))
    return found | {"copy": copy}


def test_compose_reads_it(services: dict[str, Any]) -> None:
    assert set(services["services"]) == {
        "gateway", "valkey", "postgres", "vllm", "collector", "prometheus", "grafana"
    }  # fmt: skip
    assert services["services"]["vllm"]["profiles"] == ["gpu"]


def test_what_is_mounted_is_there_and_secrets_are_for_their_containers_alone(services: dict[str, Any]) -> None:
    for service in services["services"].values():
        for mount in service.get("volumes", ()):
            assert mount["type"] == "volume" or Path(mount["source"]).exists(), mount
    secrets = services["copy"] / "compose/secrets"
    assert secrets.stat().st_mode & 0o777 == 0o700
    for secret in services["secrets"].values():
        assert Path(secret["file"]).read_text().strip()
    assert (secrets / "valkey_password").read_text() in (secrets / "redis_url").read_text()
    assert (secrets / "postgres_password").read_text() in (secrets / "database_url").read_text()
    assert len((secrets / "grafana_password").read_text()) == 48
    text = (DEPLOY / "compose.yaml").read_text()
    assert not [word for word in ("PASSWORD: ", "requirepass foo", "sk-") if word in text]


def test_images_have_tags_and_ports_are_this_machines(services: dict[str, Any]) -> None:
    for service in services["services"].values():
        assert service["image"].rpartition(":")[2] not in ("", "latest")
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", ()))


def test_the_gateway_is_confined_and_has_time_to_leave(services: dict[str, Any], tmp_path: Path) -> None:
    gateway = services["services"]["gateway"]
    assert gateway["read_only"]
    assert gateway["cap_drop"] == ["ALL"]
    typed(gateway["command"])
    config = checked(DEPLOY / "compose/gateway.yaml", POLICIES, tmp_path)
    assert float(gateway["stop_grace_period"].replace("1m0s", "60").rstrip("s")) >= drain_s(config) + CLOSING_S


def test_the_services_names_are_those_that_the_files_call(services: dict[str, Any]) -> None:
    calls = {
        "compose/gateway.yaml": "http://vllm:8000/v1",
        "prometheus/prometheus.yml": "gateway:8080",
        "grafana/provisioning/datasources/prometheus.yaml": "http://prometheus:9090",
    }
    for file, address in calls.items():
        assert address in (DEPLOY / file).read_text()
    served = next(word for word in services["services"]["vllm"]["command"] if "served-model-name" in word)
    backends = yaml.safe_load((DEPLOY / "compose/gateway.yaml").read_text())["backends"]
    assert served.rpartition("=")[2] == backends[0]["model"]
    assert services["services"]["gateway"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
