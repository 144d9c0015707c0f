"""The manifests as kubectl builds them, against Kubernetes' own schemas."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.gateway_files import CLOSING_S, POLICIES, checked, drain_s, typed
from tests.deploy.queries import DEPLOY

BASE = DEPLOY / "kubernetes" / "base"
VERSIONS = ("1.30", "1.33")

Manifests = dict[str, dict[str, Any]]


def built(folder: Path) -> Manifests:
    text = subprocess.check_output(["kubectl", "kustomize", str(folder)], timeout=15)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return built(BASE)


@pytest.fixture
def pod(manifests: Manifests) -> dict[str, Any]:
    found: dict[str, Any] = manifests["StatefulSet/thriftgate"]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(manifests: Manifests, version: str) -> None:
    assert len(manifests) == 10
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_pod_has_time_to_finish_its_streams(pod: dict[str, Any], tmp_path: Path) -> None:
    config = checked(BASE / "gateway.yaml", BASE / "policies", tmp_path)
    (gateway,) = pod["containers"]
    pause = float(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
    readiness = gateway["readinessProbe"]
    assert pause >= readiness["periodSeconds"] * readiness["failureThreshold"]
    assert pod["terminationGracePeriodSeconds"] >= pause + drain_s(config) + CLOSING_S
    typed(gateway["args"])


def test_a_pod_is_confined_and_runs_as_the_images_user(pod: dict[str, Any]) -> None:
    (user,) = re.findall(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    (gateway,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(user)
    assert gateway["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for probe, path in (("startup", "live"), ("liveness", "live"), ("readiness", "ready")):
        assert gateway[f"{probe}Probe"]["httpGet"]["path"] == f"/health/{path}"


def test_what_is_mounted_is_what_there_is(manifests: Manifests, pod: dict[str, Any]) -> None:
    (gateway,) = pod["containers"]
    claims = manifests["StatefulSet/thriftgate"]["spec"]["volumeClaimTemplates"]
    volumes = {each["name"]: each for each in (*pod["volumes"], *(claim["metadata"] for claim in claims))}
    mounted = {mount["name"]: mount["mountPath"] for mount in gateway["volumeMounts"]}
    assert mounted.keys() == volumes.keys()
    (data,) = re.findall(r"THRIFTGATE_DATA_DIR=(\S+)", (DEPLOY / "Dockerfile").read_text())
    assert data.startswith(mounted["data"] + "/")  # the volume itself may be root's
    config = manifests[f"ConfigMap/{volumes['config']['configMap']['name']}"]
    assert config["data"].keys() == {"gateway.yaml"}
    for secret in re.findall(r"file:(\S+)", config["data"]["gateway.yaml"]):
        assert Path(secret).parent == Path(mounted["secrets"])
    policies = manifests["ConfigMap/thriftgate-policies"]["data"]
    assert policies["default.yaml"] == (POLICIES / "default.yaml").read_text()


def test_selectors_find_the_pods(manifests: Manifests) -> None:
    labels = manifests["StatefulSet/thriftgate"]["spec"]["template"]["metadata"]["labels"]
    for name in ("Service/thriftgate", "Service/thriftgate-pods"):
        assert manifests[name]["spec"]["selector"].items() <= labels.items()
    for name in ("PodDisruptionBudget/thriftgate", "StatefulSet/thriftgate"):
        assert manifests[name]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert manifests["NetworkPolicy/thriftgate"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert manifests["HorizontalPodAutoscaler/thriftgate"]["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"


def test_the_monitoring_component_fits_an_overlay(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    for name in ("base", "monitoring"):
        subprocess.run(["cp", "-r", str(DEPLOY / "kubernetes" / name), str(tmp_path)], check=True)
    (overlay / "kustomization.yaml").write_text("resources: [../base]\ncomponents: [../monitoring]\n")
    found = built(overlay)
    wanted = found["ServiceMonitor/thriftgate"]["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= found["Service/thriftgate-pods"]["metadata"]["labels"].items()
    assert not wanted.items() <= found["Service/thriftgate"]["metadata"]["labels"].items()
