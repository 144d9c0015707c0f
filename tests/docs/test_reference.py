"""The reference against the code that it describes: nothing is missing, nothing is made up."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import click
import orjson
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

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
from gateway.domain.money.usage import Usage
from gateway.domain.money.windows import window_bounds
from gateway.domain.policy import Policy
from gateway.domain.record import Record
from gateway.domain.request import Controls
from gateway.domain.tenant import Key, Tenant
from gateway.domain.units import usd_to_pico
from gateway.settings.environment import PROVIDER_KEYS
from gateway.settings.files import parse
from gateway.settings.gateway import Paths
from gateway.settings.renamed_keys import GATEWAY, POLICY, SwitchToValue
from tests.docs.markdown import (
    LLMS,
    PAGES,
    REFERENCE,
    ROOT,
    anchors,
    cells,
    fences,
    first_column,
    links,
    table,
    yaml_block,
)
from tests.docs.reference.blocks import generated, regenerated
from tests.docs.reference.commands import leaves
from tests.docs.reference.settings import MODELS, UNSET, named

PAGE = {"gateway": "gateway-yaml.md", "backend": "gateway-yaml.md", "policy": "policy-yaml.md"}


@pytest.mark.parametrize("page", sorted(REFERENCE.glob("*.md")), ids=lambda page: page.name)
def test_the_generated_parts_are_as_the_code_has_them(page: Path) -> None:
    """Else: `make reference`."""
    text = page.read_text(encoding="utf-8")
    assert regenerated(text) == text


@pytest.mark.parametrize("name", MODELS)
def test_every_key_is_in_one_table(name: str) -> None:
    assert sorted(row[0].strip("`") for row in rows(name)) == sorted(key for key, _ in named(name))


def rows(name: str) -> list[list[str]]:
    """Of all generated tables of this name."""
    found = generated(REFERENCE / PAGE[name], name)
    return [row for text in found for row in [cells(line) for line in text.splitlines()][2:]]


@pytest.mark.parametrize("name", MODELS)
def test_the_defaults_are_the_models(name: str) -> None:
    models = dict(named(name))
    for cell, _, default, meaning in rows(name):
        field, said = models[cell.strip("`")], default.strip("`")
        assert meaning.endswith("."), cell
        if field.is_required():
            assert said == "required", cell
            continue
        value = field.get_default(call_default_factory=True)
        if isinstance(value, BaseModel) or value in (None, "", (), {}, frozenset()):
            assert said == UNSET, cell
            continue
        if said == UNSET:
            assert cell == "`strength`"  # the tier is `hosted` where a file leaves it out
            continue
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[(field.annotation, "", *field.metadata)])
        assert adapter.validate_python(yaml.safe_load(said)) == adapter.validate_python(value), cell


def test_the_list_of_old_names_is_whole() -> None:
    text = (ROOT / "docs" / "how-to" / "renamed-keys.md").read_text(encoding="utf-8")
    for each in (*GATEWAY, *POLICY):
        assert re.search(rf"\b{re.escape(each.old)}\b", text), each
        new = each.value if isinstance(each, SwitchToValue) else each.new
        assert re.search(rf"\b{re.escape(new)}\b", text), each


def test_every_command_has_a_line_and_a_section() -> None:
    page = REFERENCE / "cli.md"
    (overview,) = generated(page, "commands")
    paths = [path for path, _ in leaves(cli, click.Context(cli))]
    assert [cells(line)[0].strip("`") for line in overview.splitlines()[2:]] == paths
    sections = re.findall(r"^### (.+)$", "".join(generated(page, "command")), re.MULTILINE)
    assert sorted(sections) == sorted(paths)
    assert {path.split()[0] for path in paths} == set(COMMANDS)


def test_every_request_header_has_a_line_and_its_example_works() -> None:
    rows = table("request-headers", REFERENCE / "headers.md")
    told = [(header.strip("`"), example.strip("`")) for header, example, _ in rows]
    assert len(told) == len(Controls._fields)
    changed = set()
    for header, example in told:
        controls = parse_controls({header.encode(): example.encode()})
        changed |= {name for name in Controls._fields if getattr(controls, name) != getattr(Controls(), name)}
    assert len(changed) == len(told)


def test_every_response_header_has_a_line_and_every_line_a_header() -> None:
    record = Record("req_1", Tenant(Key("k", "t"), Policy(team="t")), "auto", "openai_chat", stream=False)
    attempt = record.attempt(Backend(name="small", kind="simulated", model="m"))
    attempt.outcome, attempt.output_cap, attempt.usage = "ok", 256, Usage(1, cached_tokens=1)
    record.difficulty, record.trimmed_tokens, record.escalated, record.cost_pico = 0.5, 9, True, 1
    record.degraded.add("state")
    record.over_budget = ("day",)
    record.of_gateway, attempt.price_text = True, "input=1 output=2"
    record.ratelimit[b"x-ratelimit-limit-requests"] = b"1"
    assert set(first_column("response-headers", REFERENCE / "headers.md")) == {
        name.decode() for name, _ in of_record(record)
    }


def test_every_error_that_a_client_can_see_says_what_to_do() -> None:
    (text,) = generated(REFERENCE / "errors.md", "errors")
    told = {cells(line)[0].strip("`"): cells(line) for line in text.splitlines()[2:]}
    seen = {errors.GatewayError, *every(errors.GatewayError)} - {errors.BackendError, *every(errors.BackendError)}
    assert told.keys() == {error.code for error in (*seen, errors.StreamBroken)}
    assert all(row[-1].endswith(".") for row in told.values())
    failures = [(), (errors.BackendRateLimited("x"),), (errors.BackendFailed("x"),), (errors.BackendOverloaded("x"),)]
    for failed in map(errors.AllBackendsFailed, failures):
        assert str(failed.status) in told[failed.code][1]


def test_every_code_of_an_attempt_is_told() -> None:
    told = {cells[1]: cells[0] for cells in table("attempt-errors", REFERENCE / "errors.md")}
    classes = {name.strip("`"): code.strip("`") for names, code in told.items() for name in names.split(", ")}
    made = {error: error("x") for error in every(errors.BackendError)}
    assert classes == {error.__name__: one.code for error, one in made.items()}


def every(error: type[Exception]) -> Iterator[Any]:
    for sub in error.__subclasses__():
        yield sub
        yield from every(sub)


def test_every_metric_has_a_meaning() -> None:
    (text,) = generated(REFERENCE / "metrics.md", "metrics")
    assert all(cells(line)[-1].endswith((".", "`.")) for line in text.splitlines()[2:])


def test_every_route_is_told() -> None:
    door = SimpleNamespace(needs=lambda *scopes: lambda endpoint: endpoint, knows=lambda endpoint: endpoint)
    nothing: dict[str, Any] = dict.fromkeys(
        ("fleet", "telemetry", "state", "ring", "policies", "drain", "feedback", "spend", "cache_wrong", "reported")
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
    (told,) = generated(REFERENCE / "http.md", "routes")
    for path in {route.path for room in made for route in room.routes}:
        assert path.replace("{name:path}", "{name}") in told, path


def test_the_alert_is_the_one_that_is_sent() -> None:
    page = ROOT / "docs" / "how-to" / "budgets-alerts.md"
    (shown,) = [orjson.loads(fence.text) for fence in fences(page, "json")]
    budget, _ = parse(yaml_block(page, "policies/search.yaml"), Policy, page.name).budget
    at = datetime(2026, 11, 21, 10, 15, tzinfo=UTC).timestamp()
    window = window_bounds(budget.window, budget.timezone, at)
    alerts = due(BudgetWindow("search", budget), usd_to_pico(Decimal(shown["spent_usd"])), window, at)
    assert shown in [{"id": alert.id, **alert.payload} for alert in alerts]


def test_the_environment_and_the_data_directory_are_told() -> None:
    variables = (REFERENCE / "gateway-yaml.md").read_text(encoding="utf-8")
    for word in (*PROVIDER_KEYS.values(), "THRIFTGATE_DATA_DIR", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        assert word in variables, word
    names = [name for name, value in vars(Paths).items() if isinstance(value, property) and name != "socket"]
    told = " ".join(first_column("files", REFERENCE / "files.md"))
    for name in names:
        assert getattr(Paths(Path("/d")), name).name in told, name


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
    lines = [line for page in PAGES for fence in fences(page, "sh") for line in fence.text.splitlines()]
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    quoted = [name for page in PAGES for name in re.findall(r"`make ([a-z-]+)[ `]", page.read_text(encoding="utf-8"))]
    assert targets
    for target in {*targets, *quoted}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_list_for_language_models_names_every_page() -> None:
    listed = LLMS.read_text(encoding="utf-8")
    assert listed.startswith("# Thriftgate\n\n> ")
    pages = [str(page.relative_to(ROOT)) for page in PAGES]
    assert sorted(links(LLMS)) == sorted(page for page in pages if not page.startswith(("docs/es/", "docs/pt/")))
    assert listed.count("](") == len(links(LLMS))


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
