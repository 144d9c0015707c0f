"""Fuzz a gateway of its own for long: `python -m tests.fuzz --minutes 60 --seed 7`. Exit status 1 at any 500."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random, SystemRandom

from tests.fuzz.framing import message
from tests.fuzz.policies import policy
from tests.fuzz.requests import ask_inference, ask_other, ask_valid
from tests.fuzz.stage import Stage, open_stage, resident_bytes
from tests.fuzz.wire import Client, raw

WARM = 20_000
"""Requests before memory is first measured: caches fill, pools open."""
SHOWN = 10
"""Faults that are printed in full."""
MOST_GROWTH_MIB = 50


def attack(stage: Stage, random: Random, until: float) -> None:
    """One connection's requests until `until`."""
    client = stage.client()
    while time.monotonic() < until and len(stage.faults) < SHOWN:
        try:
            _one(stage, client, random)
        except (TimeoutError, OSError) as error:
            stage.saw(0, "")
            print(f"no answer: {error!r}", flush=True)
            client.close()
    client.close()


def _one(stage: Stage, client: Client, random: Random) -> None:
    kind = random.random()
    if kind < 0.45:
        ask_inference(stage, client, random)
    elif kind < 0.65:
        ask_other(stage, client, random)
    elif kind < 0.9:
        ask_valid(stage, client, random)
    else:
        data = message(random, stage.key)
        for status in raw(stage.gateway.port, data) or [0]:
            stage.saw(status, f"framing {data[:3000]!r}")


def rewrite_policies(stage: Stage, random: Random, until: float) -> None:
    """A changed policy file of a team of its own, every few seconds."""
    while time.monotonic() < until:
        (stage.gateway.folder / "mean.yaml").write_bytes(policy(random))
        time.sleep(2)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32), help="printed when not given")
    options.add_argument("--connections", type=int, default=16)
    options.add_argument("--workers", type=int, default=1)
    given = options.parse_args()
    print(f"seed {given.seed}; {given.connections} connections, {given.minutes} minutes", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="tg-fuzz-") as folder,
        open_stage(Path(folder) / "home", given.workers) as stage,
    ):
        stage.provider.random, stage.provider.share = Random(given.seed), 0.4
        return _run(stage, given)


def _run(stage: Stage, given: argparse.Namespace) -> int:
    begun = time.monotonic()
    until = begun + given.minutes * 60
    seeds = (Random(f"{given.seed}-{number}") for number in range(given.connections))
    threads = [threading.Thread(target=attack, args=(stage, random, until), daemon=True) for random in seeds]
    threads.append(threading.Thread(target=rewrite_policies, args=(stage, Random(given.seed), until), daemon=True))
    for thread in threads:
        thread.start()
    first, told = 0, begun
    while any(thread.is_alive() for thread in threads[:-1]):
        time.sleep(0.5)
        if not first and stage.statuses.total() >= WARM:
            first = resident_bytes(stage.gateway)
        if time.monotonic() - told >= 60:
            told = time.monotonic()
            print(f"{stage.statuses.total():8d} requests, {resident_bytes(stage.gateway) / 2**20:.0f} MiB", flush=True)
    return _report(stage, first or resident_bytes(stage.gateway), time.monotonic() - begun)


def _report(stage: Stage, first: int, took_s: float) -> int:
    last = resident_bytes(stage.gateway)
    for fault in stage.faults[:SHOWN]:
        print(f"500: {fault}")
    made = stage.statuses.total()
    print(f"{made} requests in {took_s:.0f} s, {made / took_s:.0f} requests/s")
    print("statuses (0: no answer): " + ", ".join(f"{status}: {n}" for status, n in sorted(stage.statuses.items())))
    print(f"resident memory of all processes, after {WARM} requests and at the end: "
          f"{first / 2**20:.0f} MiB -> {last / 2**20:.0f} MiB")  # fmt: skip
    grown = last - first > MOST_GROWTH_MIB * 2**20
    try:
        stage.provider.share = 0.0
        stage.assert_serves()
        stage.assert_clean()
    except AssertionError as error:
        print(error)
        return 1
    return 1 if stage.faults or grown else 0


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main())
