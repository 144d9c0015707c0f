"""Every client works unchanged behind the gateway, whichever dialect its backend speaks, with everything off and on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.catalogue import APPS, CLOUDS, OFF, TARGETS, UPSTREAMS, App, Target
from tests.clients.stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("app", "case", "target"),
    [
        pytest.param(app, case, target, id=f"{app.name}-{case}-{target}")
        for app in APPS
        for case in app.cases
        for target in app.targets
    ],
)
def test_the_client_works(stage: Stage, home: Path, app: App, case: str, target: Target) -> None:
    report = stage.report(app, target, home)
    assert case in report, f"{app.name} did not come to {case}:\n{report['']}"
    assert not report[case], report[case]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_every_case_of_a_client_is_listed(stage: Stage, home: Path, app: App) -> None:
    assert set(stage.report(app, TARGETS[0], home)) - {""} == set(app.cases)


@pytest.mark.parametrize("target", [*OFF, *CLOUDS], ids=str)
@pytest.mark.parametrize("app", [app for app in APPS if app.everywhere], ids=lambda app: app.name)
def test_a_client_reaches_the_upstream_of_its_model(stage: Stage, home: Path, app: App, target: Target) -> None:
    stage.report(app, target, home)
    asked = {name for name, times in stage.asked[app, target].items() if times}
    assert asked - {UPSTREAMS[target.model], "chat"} == set(), "the embedder is at the upstream of chat"
    assert stage.asked[app, target][UPSTREAMS[target.model]] > 5


@pytest.mark.parametrize("app", APPS[:3], ids=lambda app: app.name)
def test_no_key_crosses_the_gateway(stage: Stage, home: Path, app: App) -> None:
    for target in app.targets:
        stage.report(app, target, home)
    heard = [request for brain in stage.brains.values() for request in brain.heard]
    assert heard
    for request in heard:
        said = f"{request.path} {request.headers}"
        assert not any(key in said for key in stage.keys.values()), said
