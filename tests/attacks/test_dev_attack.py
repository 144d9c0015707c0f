"""`thriftgate dev attack`: a real gateway is asked everything, and a server that refuses nothing is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from tests.e2e.gateway_process import GatewayProcess

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = "backends: []\nlocal_model: {enabled: false}\nadmin_api: true\nrequests: {body_grace: 1s}\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("dev") / "home", CONFIG, {"one": ""}) as process:
        yield process


class Open(BaseHTTPRequestHandler):
    """Answers everything with 200."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b'{"keys": [], "backends": []}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def naive() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Open)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def attacked(url: str, key: str, *words: str) -> Result:
    return CliRunner().invoke(cli, ["dev", "attack", url, *words], env={"THRIFTGATE_KEY": key, "COLUMNS": "200"})


async def test_a_running_gateway_refuses_what_is_bought_or_told_nowhere(gateway: GatewayProcess) -> None:
    key = await gateway.key("one")
    done = await asyncio.to_thread(attacked, gateway.base, key, "--json")
    assert done.output, done.exception
    rows = orjson.loads(done.stdout)
    assert len(rows) >= 20
    assert done.exit_code == (0 if all(row["ok"] for row in rows) else 1)
    assert [row for row in rows if not row["ok"]] == []
    assert "Traceback" not in gateway.log


def test_a_server_that_refuses_nothing_fails_each_attack(naive: str) -> None:
    done = attacked(naive, "tg-nobody")
    assert done.exit_code == 1, done.output
    failed = [line for line in done.output.splitlines() if line.rstrip().endswith(" failed")]
    assert any("gzip, gzip" in line for line in failed)
    assert any("with details" in line for line in failed)
    assert any("a slow upload" in line and "no answer in time" in line for line in failed)
    assert len(failed) >= 15, done.output


def test_a_url_with_a_path_is_refused_in_words() -> None:
    done = attacked("http://127.0.0.1:1/v1", "tg-nobody")
    assert (done.exit_code, "without a path" in done.output) == (2, True)


def test_where_nothing_listens_it_says_so() -> None:
    done = attacked("http://127.0.0.1:1", "tg-nobody")
    assert (done.exit_code, "Cannot connect to" in done.output) == (1, True)
