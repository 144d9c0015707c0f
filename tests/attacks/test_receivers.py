"""A policy's receivers lead to addresses that the operator meant for alerts, and to nothing else in the environment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import orjson
import pytest

from gateway.alerts.delivery.receivers import Receivers
from gateway.settings.receivers import Addresses, KnownReceivers, ReceiverSettings
from tests.e2e.gateway_process import GatewayProcess

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {name: small, kind: local, base_url: "http://127.0.0.1:1/v1", model: m, tier: small, api_key: env:HOUSE_KEY}
ledger: {database_url: env:HOUSE_DATABASE}
local_model: {enabled: false}
"""
SECRET = "a-word-that-nobody-shall-read"


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """Commands are run from here: nobody else is on the loop."""


class Listener:
    """Accepts everything, and remembers paths and bodies."""

    def __init__(self) -> None:
        heard = self.heard = list[str]()

        class Accept(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(self.path)
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Accept)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    made = Listener()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, listener: Listener) -> GatewayProcess:
    """Its files; only commands run on them."""
    home = tmp_path_factory.mktemp("receivers") / "home"
    environment = {
        "HOUSE_KEY": f"{listener.url}/{SECRET}",
        "HOUSE_DATABASE": f"sqlite:///{home}/data/ledger.sqlite",
        "OPENAI_API_KEY": f"{listener.url}/{SECRET}",
        "THRIFTGATE_SMTP_PASSWORD": f"{listener.url}/{SECRET}",
        "NO_URL": SECRET,
        "FILE_URL": f"file:///{SECRET}",
        "TEAM_URL": f"{listener.url}/team",
    }
    (home / "data").mkdir(parents=True)
    return GatewayProcess(home, CONFIG, environment=environment)


def said_and_heard(gateway: GatewayProcess, listener: Listener, notify: str) -> tuple[str, list[str]]:
    """What `alerts test` says of a team's receiver, and what the listener heard of it."""
    gateway.write_policy("mean", f"alerts: {{notify: [{notify}]}}\n")
    listener.heard.clear()
    done = gateway.run("alerts", "test", "--team", "mean", "--json", check=False)
    assert done.stdout.startswith("{"), done.stderr
    said = [one["said"] for kinds in orjson.loads(done.stdout).values() for one in kinds.values()]
    assert SECRET not in done.stdout + done.stderr
    assert SECRET not in gateway.run("check", check=False).stdout
    return said[0], list(listener.heard)


@pytest.mark.parametrize("name", ["HOUSE_KEY", "HOUSE_DATABASE", "OPENAI_API_KEY", "THRIFTGATE_SMTP_PASSWORD"])
@pytest.mark.parametrize("kind", ["webhook", "slack", "email"])
def test_a_policy_cannot_name_a_variable_of_the_gateways_own(
    gateway: GatewayProcess, listener: Listener, kind: str, name: str
) -> None:
    said, heard = said_and_heard(gateway, listener, f"{{{kind}: env:{name}}}")
    assert (said, heard) == (f"env:{name} is a variable of the gateway itself; use another one", [])
    assert f"env:{name} is a variable of the gateway itself" in gateway.run("check", check=False).stdout


@pytest.mark.parametrize("kind", ["webhook", "slack"])
@pytest.mark.parametrize("name", ["NO_URL", "FILE_URL"])
def test_what_is_no_url_is_not_asked_for_and_not_repeated(
    gateway: GatewayProcess, listener: Listener, kind: str, name: str
) -> None:
    said, heard = said_and_heard(gateway, listener, f"{{{kind}: env:{name}}}")
    assert (said, heard) == ("what the variable or file holds is no http or https URL", [])


def test_another_variable_is_still_open_without_the_operators_list(gateway: GatewayProcess, listener: Listener) -> None:
    said, heard = said_and_heard(gateway, listener, "{webhook: env:TEAM_URL}")
    assert said == "answered 204"
    assert set(heard) == {"/team"}


def test_with_the_operators_list_only_its_names_are_open(gateway: GatewayProcess, listener: Listener) -> None:
    config, address = gateway.home / "gateway.yaml", gateway.home / "address"
    address.write_text(f"{listener.url}/{SECRET}\n")
    try:
        config.write_text(f"{CONFIG}receivers: {{finops: {{slack: 'file:{address}'}}}}\n")
        said, heard = said_and_heard(gateway, listener, "{receiver: finops}")
        assert (said, set(heard)) == ("answered 204", {f"/{SECRET}"})
        said, heard = said_and_heard(gateway, listener, "{webhook: env:TEAM_URL}")
        assert "is not allowed in a policy; use one of the operator's receivers" in said
        assert not heard
        said, heard = said_and_heard(gateway, listener, "{receiver: other}")
        assert (said, heard) == ("the operator's file has no receiver called 'other'", [])
        address.unlink()
        said, heard = said_and_heard(gateway, listener, "{receiver: finops}")
        assert str(address) not in said
        assert not heard
    finally:
        config.write_text(CONFIG)


async def test_a_receivers_address_is_read_for_every_alert(tmp_path: Path, listener: Listener) -> None:
    address = tmp_path / "address"
    receivers: dict[str, ReceiverSettings] = {}
    opened = Receivers(addresses=Addresses(lambda: KnownReceivers(receivers)))
    await opened.open()
    listener.heard.clear()
    try:
        assert not (await opened.deliver("receiver:finops", "1", b"{}")).accepted
        receivers["finops"] = ReceiverSettings(webhook=f"file:{address}")
        for path in ("/one", "/two"):
            address.write_text(listener.url + path)
            assert (await opened.deliver("receiver:finops", "1", b"{}")).accepted
    finally:
        await opened.aclose()
    assert listener.heard == ["/one", "/two"]
