"""The README's tables against the code they describe: nothing is missing, nothing is made up."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin

import click
import orjson
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from gateway import errors
from gateway.alerts.detect.thresholds import BudgetWindow, due
from gateway.api.response_headers import of_record
from gateway.api.routes.admin import Admin
from gateway.api.routes.alerts import AlertRoutes
from gateway.api.routes.batches import BatchRoutes
from gateway.api.routes.drains import DrainRoutes
from gateway.api.routes.message_batches import MessageBatchRoutes
from gateway.api.routes.models import ModelRoutes
from gateway.api.routes.service import ServiceRoutes
from gateway.cli.main import COMMANDS, cli
from gateway.dialects.controls import parse_controls
from gateway.domain.backend import Backend
from gateway.domain.money.windows import window_bounds
from gateway.domain.policy import Policy, Section
from gateway.domain.record import Record
from gateway.domain.request import Controls
from gateway.domain.tenant import Key, Tenant
from gateway.domain.units import usd_to_pico
from gateway.settings.environment import PROVIDER_KEYS
from gateway.settings.files import parse
from gateway.settings.gateway import GatewayConfig, Paths
from gateway.telemetry.exposition import text as exposition
from gateway.telemetry.host import Host
from gateway.telemetry.metrics import COUNTERS
from tests.docs.markdown import PAGES, README, ROOT, anchors, fences, first_column, links, table, yaml_block
from tests.docs.new_names import new_name

MODELS: dict[str, type[Section]] = {"gateway": GatewayConfig, "backend": Backend, "policy": Policy}
UNSET = "–"


def sections(annotation: Any) -> Iterator[tuple[str, type[Section]]]:
    """("NAME." under a mapping, model) of every section that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield "", annotation
        return
    step = "NAME." if get_origin(annotation) is dict else ""
    for part in get_args(annotation):
        for inner, model in sections(part):
            yield step + inner, model


def keys(model: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted key → field; a mere container has no line of its own."""
    for name, field in model.model_fields.items():
        nested = [] if prefix + name == "backends" else list(sections(field.annotation))
        if field.description or not nested:
            yield prefix + name, field
        for step, section in nested:
            yield from keys(section, f"{prefix}{name}.{step}")


def documented(name: str) -> dict[str, FieldInfo]:
    """Key as documents write it → field."""
    return {new: field for key, field in keys(MODELS[name]) if (new := new_name(name, key)) is not None}


@pytest.mark.parametrize("name", MODELS)
def test_every_key_has_a_line_and_every_line_a_key(name: str) -> None:
    assert sorted(first_column(name)) == sorted(documented(name))


@pytest.mark.parametrize("name", MODELS)
def test_the_defaults_are_the_models(name: str) -> None:
    models = documented(name)
    for cell, default, meaning in table(name):
        field, said = models[cell.strip("`")], default.strip("`")
        assert meaning.endswith("."), cell
        if field.is_required():
            assert said == "required", cell
            continue
        value = field.get_default(call_default_factory=True)
        if isinstance(value, BaseModel) or value in (None, "", (), {}, frozenset()):
            assert said == UNSET, cell
            continue
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[(field.annotation, "", *field.metadata)])
        assert adapter.validate_python(yaml.safe_load(said)) == adapter.validate_python(value), cell


def test_the_examples_are_valid_files() -> None:
    parse(yaml_block(README, "gateway.yaml"), GatewayConfig, "README.md")
    for name in ("search", "adopting"):
        assert parse(yaml_block(README, f"policies/{name}.yaml"), Policy, "README.md").team == name


def test_every_command_has_a_line_and_every_line_a_command() -> None:
    assert sorted(first_column("commands")) == sorted(leaves(cli, click.Context(cli)))
    assert {line.split()[0] for line in first_column("commands")} == set(COMMANDS)


def leaves(command: click.Command, context: click.Context, path: str = "") -> Iterator[str]:
    """`serve`, `keys create` …"""
    if not isinstance(command, click.Group):
        yield path
        return
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        assert sub is not None
        yield from leaves(sub, context, f"{path} {name}".strip())


def test_every_request_header_has_a_line_and_its_example_works() -> None:
    told = [(header.strip("`"), example.strip("`")) for header, example, _ in table("request-headers")]
    assert len(told) == len(fields(Controls))
    changed = set()
    for header, example in told:
        controls = parse_controls({header.encode(): example.encode()})
        changed |= {
            field.name for field in fields(Controls) if getattr(controls, field.name) != getattr(Controls(), field.name)
        }
    assert len(changed) == len(told)


def test_every_response_header_has_a_line_and_every_line_a_header() -> None:
    record = Record("req_1", Tenant(Key("k", "t"), Policy(team="t")), "auto", "openai_chat", stream=False)
    attempt = record.attempt(Backend(name="small", kind="simulated", model="m"))
    attempt.outcome, attempt.output_cap = "ok", 256
    record.difficulty, record.trimmed_tokens, record.escalated, record.cost_pico = 0.5, 9, True, 1
    record.degraded.add("state")
    record.over_budget = ("day",)
    record.ratelimit["x-ratelimit-limit-requests"] = "1"
    assert set(first_column("response-headers")) == {name.decode() for name, _ in of_record(record)}


def test_every_error_a_client_can_see_has_a_line_with_its_status() -> None:
    told = {code.strip("`"): status for code, status, _ in table("errors")}
    seen = {errors.GatewayError, *every(errors.GatewayError)} - {errors.BackendError, *every(errors.BackendError)}
    seen.add(errors.StreamBroken)
    assert set(told) == {error.code for error in seen}
    for error in seen - {errors.StreamBroken, errors.AllBackendsFailed}:
        assert told[error.code] == str(error.status)
    outcomes = [(), (errors.BackendRateLimited("x"),), (errors.BackendFailed("x"),), (errors.BackendOverloaded("x"),)]
    ends = {(error.code, error.status) for error in map(errors.AllBackendsFailed, outcomes)}
    statuses = sorted(status for code, status in ends if code == errors.AllBackendsFailed.code)
    assert told[errors.AllBackendsFailed.code] == ", ".join(map(str, statuses))
    assert all(told[code] == str(status) for code, status in ends if code != errors.AllBackendsFailed.code)


def every(error: type[Exception]) -> Iterator[Any]:
    for sub in error.__subclasses__():
        yield sub
        yield from every(sub)


def test_every_metric_has_a_line_and_every_line_a_metric() -> None:
    text = exposition(Host()).decode()
    assert sorted(first_column("metrics")) == sorted(re.findall(r"^# HELP (\S+)", text, re.MULTILINE))
    labels = {row[0].strip("`").removesuffix("_total"): row[1] for row in table("metrics")}
    for name, _, _, names, _ in COUNTERS:
        assert labels[name] == ", ".join(names)


def test_every_route_is_told() -> None:
    door = SimpleNamespace(needs=lambda *scopes: lambda endpoint: endpoint, knows=lambda endpoint: endpoint)
    nothing: dict[str, Any] = dict.fromkeys(
        ("fleet", "telemetry", "state", "ring", "policies", "drain", "feedback", "spend", "cache_wrong")
    )
    made: list[Any] = [
        ModelRoutes(authenticator=door, fleet=None),  # type: ignore[arg-type]
        ServiceRoutes(authenticator=door, **nothing),  # type: ignore[arg-type]
        BatchRoutes(authenticator=door, files=None, jobs=None, uploads=None),  # type: ignore[arg-type]
        MessageBatchRoutes(authenticator=door, files=None, jobs=None, uploads=None, max_request_bytes=1),  # type: ignore[arg-type]
        AlertRoutes(authenticator=door, database=None, clock=None),  # type: ignore[arg-type]
        DrainRoutes(authenticator=door, fleet=None, database=None),  # type: ignore[arg-type]
        Admin(authenticator=door, fleet=None, database=None, policies=None, spend=None),  # type: ignore[arg-type]
    ]
    told = "\n".join(" ".join(row) for row in table("routes"))
    for path in {route.path for room in made for route in room.routes}:
        plain = (
            path.replace("{name:path}", "NAME")
            .removesuffix("/content")
            .removesuffix("/cancel")
            .removesuffix("/results")
        )
        assert plain in told, path


def test_the_alert_is_the_one_that_is_sent() -> None:
    (shown,) = [orjson.loads(fence.text) for fence in fences(README, "json")]
    (budget,) = parse(yaml_block(README, "policies/search.yaml"), Policy, "README.md").budget
    at = datetime(2026, 11, 21, 10, 15, tzinfo=UTC).timestamp()
    window = window_bounds(budget.window, budget.timezone, at)
    alerts = due(BudgetWindow("search", budget), usd_to_pico(Decimal(shown["spent_usd"])), window, at)
    assert shown in [{"id": alert.id, **alert.payload} for alert in alerts]


def test_the_environment_and_the_data_directory_are_told() -> None:
    text = README.read_text(encoding="utf-8")
    names = [name for name, value in vars(Paths).items() if isinstance(value, property) and name != "socket"]
    folders = [getattr(Paths(Path("/d")), name).name for name in names]
    for word in (*PROVIDER_KEYS.values(), "THRIFTGATE_DATA_DIR", "OTEL_EXPORTER_OTLP_ENDPOINT", *folders):
        assert word in text, word


def test_every_dependency_has_a_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = (ROOT / "docs" / "contributing" / "dependencies.md").read_text(encoding="utf-8").lower()
    for line in sum(project["optional-dependencies"].values(), project["dependencies"]):
        name = re.match(r"[\w-]+", line)
        assert name is not None
        plugin = name[0].lower().removeprefix("pytest-")
        assert re.search(rf"(?<![\w-]){re.escape(plugin)}(?![\w-])", told), name[0]


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line for fence in fences(README, "sh") for line in fence.text.splitlines()]
    assert lines
    for line in lines:
        make, target, *_ = line.split()
        assert make == "make"
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(path), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    """`gateway/pipeline.py`, `policies/`, `tests/fakes/provider.py` …"""
    named = re.findall(
        r"`((?:gateway|docs|deploy|tests|loadtests|policies)/[\w./-]*)`", page.read_text(encoding="utf-8")
    )
    for name in named:
        assert (ROOT / name).exists() or name == "policies/search.yaml", f"{page.name}: {name}"
