"""`thriftgate dev` outside a development environment."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli


@pytest.mark.parametrize(("package", "words"), [("psycopg", "chaos --quick"), ("psycopg", "chaos --matrix")])
def test_a_missing_development_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str, words: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith("loadtests")]:
        monkeypatch.delitem(sys.modules, name)
    done = CliRunner().invoke(cli, ["dev", *words.split()], catch_exceptions=False)
    assert done.exit_code == 1
    assert "needs the development packages" in done.stderr
    assert f"{package} is missing" in done.stderr
