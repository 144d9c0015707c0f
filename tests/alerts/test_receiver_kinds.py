"""Files, commands and deliveries have every kind of the table; each kind sends what its service expects."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from click.testing import CliRunner
from pydantic import ValidationError

from gateway.alerts.alerts import Alerts
from gateway.alerts.delivery.pagerduty import PagerDuty
from gateway.alerts.delivery.posting import Poster
from gateway.alerts.delivery.receivers import Receivers
from gateway.alerts.detect.samples import sample
from gateway.cli.main import cli
from gateway.domain.money.budget import Budget
from gateway.domain.notify import Notify
from gateway.domain.policy import Policy
from gateway.domain.receiver_kinds import IN_POLICIES, KINDS
from gateway.policy.load import load_policies
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Ceilings, load_settings
from gateway.settings.receivers import Addresses, KnownReceivers, ReceiverSettings
from gateway.state.sql.database import Database
from tests.alerts.samples import book, row
from tests.fakes.clock import StoppedClock

NOW = 1_800_000_000.0
ALERT = sample("threshold", "search", NOW)
BODY = orjson.dumps({"id": ALERT.id, **ALERT.payload})
LIBRARY = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # when apprise is imported
KEY = "0123456789abcdefABCDEF0123456789"


class Service:
    """Answers with the statuses of its script, then with 202."""

    def __init__(self) -> None:
        self.script: list[int] = []
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = ""

    async def hook(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.got.append(orjson.loads(await request.read()))
        status = self.script.pop(0) if self.script else 202
        return web.Response(status=status, headers={"location": "/elsewhere"} if 300 <= status < 400 else {})


@pytest_asyncio.fixture
async def service() -> AsyncIterator[Service]:
    service, app = Service(), web.Application()
    app.router.add_post("/{path:.*}", service.hook)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    service.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook/secret-token"
    yield service
    await runner.cleanup()


def by_pagerduty(service: Service, address: str = KEY, addresses: Addresses | None = None) -> Receivers:
    poster = Poster()
    senders = {"pagerduty": PagerDuty(poster, url_of=lambda: service.url)}
    return Receivers(poster=poster, addresses=addresses, address_of=lambda _: address, senders=senders)


async def delivered(receivers: Receivers, target: str, bodies: Sequence[bytes] = (BODY,)) -> list[tuple[bool, str]]:
    await receivers.open()
    answers = [await receivers.deliver(target, f"{ALERT.id}/1234", body) for body in bodies]
    await receivers.aclose()
    return [(each.accepted, each.said) for each in answers]


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_that_a_row_names_is_a_sender(kind: str) -> None:
    module, _, name = KINDS[kind].sender.partition(".")
    __import__(f"gateway.alerts.delivery.{module}")
    made = getattr(sys.modules[f"gateway.alerts.delivery.{module}"], name)(Poster())
    assert callable(made.deliver)


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_a_key_of_gateway_yaml_and_a_policy_can_name_its_entry(kind: str) -> None:
    entry = ReceiverSettings.model_validate({kind: "file:/run/secrets/x"})
    addresses = Addresses(lambda: KnownReceivers({"finops": entry}))
    assert addresses.kind_and_reference(Notify(receiver="finops").target) == (kind, "file:/run/secrets/x")


@pytest.mark.parametrize("kind", IN_POLICIES)
def test_every_row_is_a_key_of_policies_and_an_option_of_the_commands(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    reference = f"env:SEARCH_{KINDS[kind].named or 'ALERTS'}"
    done = CliRunner().invoke(cli, ["team", "add", "search", "--budget", "5", f"--{kind}", reference])
    assert done.exit_code == 0, done.output
    policy, _ = load_policies([Path("policies")], Ceilings()).find("search")
    (notify,) = policy.budget[0].notify
    assert Addresses().kind_and_reference(notify.target) == (kind, reference)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(IN_POLICIES)))
async def test_what_only_the_operator_may_name_is_refused_in_a_policy(kind: str, service: Service) -> None:
    with pytest.raises(ValidationError, match=f"only `receivers` in gateway.yaml can have {kind}"):
        Notify.model_validate({kind: "env:SEARCH_ALERTS"})
    receivers = Receivers(address_of=lambda _: service.url.replace("http:", "json:"))
    ((accepted, said),) = await delivered(receivers, f"{kind}:env:SEARCH_ALERTS")
    assert (accepted, service.got) == (False, [])
    assert "is not allowed in a policy" in said


def test_an_unknown_kind_in_a_policy_is_an_error_with_file_line_key_and_the_kinds(tmp_path: Path) -> None:
    (tmp_path / "search.yaml").write_text("team: search\nalerts:\n  notify:\n  - severity: info\n    pigeon: env:X\n")
    with pytest.raises(ConfigError) as error:
        load_policies([tmp_path], Ceilings())
    assert len(error.value.problems) == 1
    assert error.value.problems[0].startswith(f"{tmp_path}/search.yaml:5: alerts.notify.0.pigeon: no kind of receiver")
    assert all(kind in error.value.problems[0] for kind in KINDS)


def test_an_unknown_kind_in_gateway_yaml_is_an_error_with_file_line_key_and_the_kinds(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("receivers:\n  finops:\n    pigeon: env:X\n")
    with pytest.raises(ConfigError) as error:
        load_settings(path)
    assert error.value.problems[0].startswith(f"{path}:3: receivers.finops.pigeon: no kind of receiver")
    assert all(kind in error.value.problems[0] for kind in KINDS)


@pytest.mark.parametrize("content", [{}, {"slack": "env:A", "msteams": "env:B"}, {"slack": "env:A", "receiver": "x"}])
def test_a_receiver_has_one_kind(content: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="give one of webhook, slack, email"):
        Notify.model_validate(content)


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("msteams", "file:///etc/passwd"),
        ("msteams", "http://"),
        ("pagerduty", "https://hooks.example/secret-token"),
        ("pagerduty", "secret-token"),
        ("email", "secret-token"),
    ],
)
async def test_an_address_of_another_form_is_neither_sent_to_nor_sent_out(
    kind: str, address: str, service: Service
) -> None:
    ((accepted, said),) = await delivered(by_pagerduty(service, address), f"{kind}:env:X_PAGERDUTY")
    assert (accepted, service.got) == (False, [])
    assert said == f"what the variable or file holds is no {KINDS[kind].form.called}"


async def test_teams_gets_an_adaptive_card_without_markup(service: Service) -> None:
    payload = {**ALERT.payload, "id": "a/b", "text": "[click](https://x) <at>all</at> " + "x" * 50_000}
    receivers = Receivers(address_of=lambda _: service.url)
    assert await delivered(receivers, "msteams:env:X", [orjson.dumps(payload)]) == [(True, "answered 202")]
    (body,) = service.got
    assert body["type"] == "message"
    (attached,) = body["attachments"]
    assert attached["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attached["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}  # the only text block that has no Markdown
    texts = [run["text"] for block in card["body"] for run in block["inlines"]]
    assert texts[0] == "search: 100%"
    assert texts[1].startswith("[click](https://x) <at>all</at> xxx")
    assert {"team: search", "kind: threshold", "severity: critical", "id: a/b"} <= set(texts)
    assert len(orjson.dumps(body)) < 28_000


async def test_pagerduty_gets_an_event_that_joins_the_alerts_incident(service: Service) -> None:
    escalated = orjson.dumps({**ALERT.payload, "id": ALERT.id, "escalated": True, "text": "x" * 2000})
    long = orjson.dumps({**ALERT.payload, "id": "x" * 300})
    answers = await delivered(by_pagerduty(service), "pagerduty:env:X_PAGERDUTY", [BODY, escalated, long])
    assert answers == [(True, "answered 202")] * 3
    first, second, third = service.got
    assert (first["routing_key"], first["event_action"], first["dedup_key"]) == (KEY, "trigger", ALERT.id)
    event = first["payload"]
    assert (event["summary"], event["severity"], event["component"], event["class"]) == (
        ALERT.payload["text"],
        "critical",
        "search",
        "threshold",
    )
    assert (event["source"], event["timestamp"]) == ("thriftgate", ALERT.payload["at"])
    assert event["custom_details"]["spent_usd"] == ALERT.payload["spent_usd"]
    assert second["dedup_key"] == ALERT.id
    assert len(second["payload"]["summary"]) == 1024
    assert len(third["dedup_key"]) == 64


async def test_another_secret_of_this_form_is_not_sent_to_pagerduty(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THRIFTGATE_PAGERDUTY_URL", service.url)
    monkeypatch.setenv("SEARCH_TOKEN", KEY)
    ((accepted, said),) = await delivered(Receivers(), "pagerduty:env:SEARCH_TOKEN")
    assert (accepted, service.got) == (False, [])
    assert "must have PAGERDUTY in its name" in said


async def test_pagerduty_is_reached_in_its_region(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRIFTGATE_PAGERDUTY_URL", service.url)
    monkeypatch.setenv("SEARCH_PAGERDUTY_KEY", KEY)
    assert await delivered(Receivers(), "pagerduty:env:SEARCH_PAGERDUTY_KEY") == [(True, "answered 202")]


def by_apprise(address: str) -> Receivers:
    entry = ReceiverSettings.model_validate({"apprise": "file:/run/secrets/address"})
    return Receivers(addresses=Addresses(lambda: KnownReceivers({"chat": entry})), address_of=lambda _: address)


@LIBRARY
async def test_apprise_posts_the_alert_and_follows_no_redirect(service: Service) -> None:
    service.script = [200, 307, 500]
    receivers = by_apprise(service.url.replace("http:", "json:"))
    answers = await delivered(receivers, "receiver:chat", [BODY] * 3)
    assert answers == [(True, "accepted"), *[(False, "receiver:chat: apprise could not deliver")] * 2]
    assert service.paths == ["/hook/secret-token"] * 3
    body = service.got[0]
    assert (body["title"], body["type"]) == ("critical: search, 100%", "failure")
    assert body["message"] == f"{ALERT.payload['text']}\n\n{ALERT.id}"


@pytest.mark.parametrize(
    ("address", "reply"),
    [
        ("nosuchservice://host/secret-token", "receiver:chat is no address of a service that apprise knows"),
        ("json://127.0.0.1:1/secret-token", "receiver:chat: apprise could not deliver"),
        ("json://a, json://b", "what the variable or file holds is no URL of Apprise"),
    ],
)
@LIBRARY
async def test_apprise_names_no_address(
    address: str, reply: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await delivered(by_apprise(address), "receiver:chat") == [(False, reply)]
    assert "secret-token" not in caplog.text + "".join(capfd.readouterr())


async def test_without_the_extra_the_answer_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    assert await delivered(by_apprise("json://127.0.0.1:1/x"), "receiver:chat") == [
        (False, "this kind of receiver needs apprise: pip install 'thriftgate[apprise]'")
    ]


def test_check_names_a_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    Path("gateway.yaml").write_text("backends: []\nreceivers: {chat: {apprise: env:CHAT_URL}}\n")
    done = CliRunner().invoke(cli, ["check"])
    assert done.exit_code == 2
    told = "✗ gateway.yaml:2: receivers.chat.apprise: needs apprise; pip install 'thriftgate[apprise]'"
    assert done.output.strip() == told


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("msteams", "answered 500"),
        ("pagerduty", "answered 500"),
        ("apprise", "receiver:ops: apprise could not deliver"),
    ],
)
@LIBRARY
async def test_a_delivery_is_repeated_until_it_is_accepted(
    kind: str, error: str, database: Database, service: Service
) -> None:
    service.script = [500, 500]
    clock = StoppedClock()
    entry = ReceiverSettings.model_validate({kind: "file:/run/secrets/address"})
    addresses = {"msteams": service.url, "pagerduty": KEY, "apprise": service.url.replace("http:", "json:")}
    known = Addresses(lambda: KnownReceivers({"ops": entry}))
    receivers = by_pagerduty(service, addresses[kind], known)
    budget = Budget(limit_usd=Decimal(10), window="day", alerts=(0.5,), notify=(Notify(receiver="ops"),))
    policies = {"search": Policy(team="search", budget=(budget,))}
    await book(database, row(1, "6", clock))
    alerts = Alerts(database, lambda: policies, receivers=receivers, clock=clock)
    await alerts.open()
    await alerts.check_once()
    errors = []
    for _ in range(3):
        assert await alerts.deliver_once() == 1
        assert await alerts.deliver_once() == 0  # not before its time
        errors += [one.last_error for one in await alerts.sent() if one.target]
        clock.now += 1000
    assert await alerts.deliver_once() == 0
    assert errors == [error, error, ""]
    assert len(service.got) == 3
    await alerts.aclose()
