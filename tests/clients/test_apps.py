"""Every client works unchanged behind the gateway, whichever dialect its backend speaks, with everything off and on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.catalogue import APPS, TARGETS, App, Target
from tests.clients.stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(
    ("app", "case"), [pytest.param(app, case, id=f"{app.name}-{case}") for app in APPS for case in app.cases]
)
def test_the_client_works(stage: Stage, home: Path, app: App, case: str, target: Target) -> None:
    report = stage.report(app, target, home)
    assert case in report, f"{app.name} did not come to {case}:\n{report['']}"
    assert not report[case], report[case]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_every_case_of_a_client_is_listed(stage: Stage, home: Path, app: App) -> None:
    assert set(stage.report(app, TARGETS[0], home)) - {""} == set(app.cases)


@pytest.mark.parametrize("app", APPS[:3], ids=lambda app: app.name)
def test_no_key_crosses_the_gateway(stage: Stage, home: Path, app: App) -> None:
    for target in TARGETS:
        stage.report(app, target, home)
    heard = [request for brain in stage.brains.values() for request in brain.heard]
    assert heard
    for request in heard:
        said = f"{request.path} {request.headers}"
        assert not any(key in said for key in stage.keys.values()), said
