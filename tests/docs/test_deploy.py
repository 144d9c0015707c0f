"""The operator's examples: the file passes `thriftgate check`, the unit starts and stops what it should."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from click import Command, Context, Group
from click.testing import CliRunner

from gateway.batches.files import MAX_BYTES
from gateway.cli.main import cli
from gateway.domain.units import parse_duration
from gateway.settings.files import parse
from gateway.settings.gateway import GatewayConfig
from gateway.settings.renamed_keys import OldName
from gateway.supervisor.ledger_service import LAST_DRAIN_S
from gateway.supervisor.supervisor import STOP_S
from gateway.supervisor.workers import GRACE_S
from tests.docs.markdown import ROOT, fences

DEPLOY = ROOT / "deploy"
EXAMPLE = DEPLOY / "gateway.example.yaml"


@pytest.fixture
def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "thriftgate.service")
    return parser


def test_the_example_passes_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    for name in re.findall(r"env:(\w+)", re.sub(r"#.*", "", text)):
        monkeypatch.setenv(name, "a-secret")
    (tmp_path / "contract.key").write_text("a-secret")
    copy = tmp_path / "gateway.yaml"
    copy.write_text(text.replace("/etc/thriftgate/", f"{tmp_path}/"))
    words = ["check", "--config", str(copy), "--policies", str(ROOT / "policies")]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_the_example_shows_every_section() -> None:
    shown = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert {"trials" if name == "learning" else name for name in shown} == set(GatewayConfig.model_fields)


def test_the_examples_settings_are_the_defaults_where_it_says_so() -> None:
    old_names: list[OldName] = []
    text = EXAMPLE.read_text(encoding="utf-8")
    told, default = parse(text, GatewayConfig, EXAMPLE.name, on_old_name=old_names.append), GatewayConfig()
    assert old_names == []
    for section in ("listen", "state", "ledger", "requests", "telemetry", "embedder"):
        assert getattr(told, section) == getattr(default, section)


def test_every_command_in_unit_and_guide_can_be_typed(unit: ConfigParser) -> None:
    guide = "".join(fence.text for fence in fences(DEPLOY / "README.md", "sh"))
    lines = [unit["Service"]["ExecStart"], *re.findall(r"/opt/thriftgate/bin/thriftgate .+", guide)]
    assert len(lines) > 3
    for line in lines:
        assert line.startswith("/opt/thriftgate/bin/thriftgate ")
        type_in(shlex.split(line)[1:])


def type_in(words: list[str], command: Command = cli) -> None:
    """Raises UsageError for words that the command does not understand."""
    while isinstance(command, Group):
        found = command.get_command(Context(command), words.pop(0))
        assert found is not None
        command = found
    with command.make_context(command.name, words):
        pass


def test_stopping_waits_for_streams_and_tells_the_supervisor_alone(unit: ConfigParser) -> None:
    service = unit["Service"]
    drain = parse_duration(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["shutdown"]["grace_period"])
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) >= drain + GRACE_S + LAST_DRAIN_S + 2 * STOP_S
    assert service["RestartPreventExitStatus"] == "2"


def test_the_proxy_of_the_guide_refuses_and_ends_nothing_that_the_gateway_would_not() -> None:
    (nginx,) = [fence.text for fence in fences(DEPLOY / "README.md", "nginx")]
    limits = dict(re.findall(r"(client_max_body_size|proxy_read_timeout) (\d+)[ms];", nginx))
    assert int(limits["client_max_body_size"]) * 2**20 > MAX_BYTES + 2**20, "the form around a file counts too"
    defaults = GatewayConfig().requests
    assert float(limits["proxy_read_timeout"]) > max(defaults.deadline, defaults.socket_idle)


def test_files_that_the_guide_installs_exist() -> None:
    guide = "".join(fence.text for fence in fences(DEPLOY / "README.md", "sh"))
    for name in re.findall(r"install -m \d+ (?:-g \w+ )?([\w./-]+\.\w+) /etc", guide):
        assert (ROOT / name).is_file(), name
