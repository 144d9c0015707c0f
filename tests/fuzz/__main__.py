"""`python -m tests.fuzz --minutes 60 --seed 1`: exit status 1 when a request got a 500."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random, SystemRandom

from tests.e2e.gateway_process import GatewayProcess, free_port
from tests.fuzz.run import CONFIG, POLICY, Found, WrongProvider, fuzz, memory

WARM_SHARE = 0.1
"""Of the time: what is resident after it is what more is compared with."""


async def run(home: Path, seed: int, minutes: float, at_once: int, wrong: float) -> bool:
    port = free_port()
    gateway = GatewayProcess(home / "home", CONFIG.format(port=port), {"one": POLICY})
    found, begun = Found(), time.monotonic()
    with gateway:
        key = await gateway.key("one", "--scope", "inference", "--scope", "usage", "--scope", "admin")
        sent_wrong = Random(seed)
        async with WrongProvider(sent_wrong, wrong, port=port):
            warm = 0
            for share in (WARM_SHARE, *[(1 - WARM_SHARE) / 9] * 9):
                await fuzz(gateway, key, seed, seconds=60 * minutes * share, at_once=at_once, found=found)
                seed += 1
                warm = warm or memory(gateway)
                rate = found.requests / (time.monotonic() - begun)
                grown = (memory(gateway) - warm) / 2**20
                told = f"{found.requests} requests, {rate:.0f}/s, {dict(found.statuses)}"
                print(f"{told}, {grown:+.1f} MiB of {warm / 2**20:.0f}", flush=True)
        log = gateway.log
    for sent, heard in found.failures:
        print(f"\n{sent!r}\n  was answered\n{heard!r}")
    if "Traceback" in log:
        print(log[log.index("Traceback") - 300 :][:6000])
    return not found.failures and "Traceback" not in log


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--seed", type=int, default=SystemRandom().randrange(2**31))
    options.add_argument("--at-once", type=int, default=16, help="connections")
    options.add_argument("--wrong", type=float, default=0.5, help="share of the provider's answers that are spoiled")
    asked = options.parse_args()
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory() as home:
        return 0 if asyncio.run(run(Path(home), asked.seed, asked.minutes, asked.at_once, asked.wrong)) else 1


if __name__ == "__main__":
    sys.exit(main())
