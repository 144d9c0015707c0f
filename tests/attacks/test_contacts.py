"""Addresses that a gateway contacts by itself, seen by the kernel: this machine's and those of its backends alone."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.requests import cache_result
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]  # a process starts, traced, with the real embedder

CONFIG = """\
trials: {{cache_checks: 0}}
admin_api: true
backends:
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
HOOK = """\
import os, sys

def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        address = arguments[0] if event.startswith("socket.get") else arguments[1]
        host = address[0] if isinstance(address, tuple) else "" if event == "socket.connect" else address
        with open(os.environ["CONTACTS"], "a") as file:
            print(host.decode() if isinstance(host, bytes) else host, file=file)

sys.addaudithook(hook)
"""
LOOPBACK = re.compile(r"(?:127\.\d+\.\d+\.\d+|::1|localhost|)$")
_ADDRESS = re.compile(r'(?:sin_addr=inet_addr\("|sin6_addr=|inet_pton\(AF_INET6, ")"?([0-9a-f.:]+)')


def traces(folder: Path) -> bool:
    """May this machine's tests trace a process?"""
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", str(folder / "tried"), "true"], capture_output=True, check=False)
    return tried.returncode == 0


async def used(gateway: GatewayProcess, port: int) -> None:
    """One request answered by meaning: whatever loads late has been loaded."""
    key = await gateway.key("search")
    asked = partial(cache_result, key=key, model="large")
    async with Provider(port=port), httpx.AsyncClient(base_url=gateway.base, timeout=30) as http:

        async def found_by_meaning() -> bool:
            await asked(http, "Why is the sky blue?", cache="refresh")
            return await asked(http, "why is the sky blue", cache="only") == "semantic"

        await until(found_by_meaning, 90)


async def test_a_gateway_contacts_its_backends_and_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    contacts, calls, home = tmp_path / "contacts", tmp_path / "calls", tmp_path / "user"
    contacts.touch()
    environment = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", "")]),
        "CONTACTS": str(contacts),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
    }
    names = "trace=connect,sendto,sendmsg,sendmmsg"
    under = ("strace", "-f", "-qq", "-e", names, "-o", str(calls)) if traces(tmp_path) else ()
    port = free_port()
    gateway = GatewayProcess(
        tmp_path / "home", CONFIG.format(port=port), {"search": ""}, environment, workers=1, under=under
    )
    await asyncio.to_thread(gateway.start)
    try:
        await used(gateway, port)
    finally:
        assert gateway.process is not None
        os.kill(gateway.facts["pid"], signal.SIGTERM)  # a tracer would detach instead of handing it on
        await asyncio.to_thread(gateway.process.wait, 45)
    assert [host for host in contacts.read_text().splitlines() if not LOOPBACK.match(host)] == []
    if under:
        called = calls.read_text(errors="replace")
        addresses = set(_ADDRESS.findall(called))
        assert "htons(53)" not in called  # no name is resolved, not even by a resolver on this machine
        assert {address for address in addresses if not LOOPBACK.match(address)} == set()
        assert "127.0.0.1" in addresses
    assert [path for path in home.rglob("*") if path.is_file()] == []
