"""`thriftgate dev chaos` outside a development environment."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli


@pytest.mark.parametrize("words", [("--quick",), ("--matrix",)])
def test_a_missing_development_package_is_named(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("loadtests")]:
        monkeypatch.delitem(sys.modules, name)
    done = CliRunner().invoke(cli, ["dev", "chaos", *words], catch_exceptions=False)
    assert done.exit_code == 1
    assert "needs the development packages" in done.stderr
