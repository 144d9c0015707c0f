"""The gateway of a mixed day: one configuration for each arm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gateway.domain.money.price import Price
from loadtests.chaos_database import Sqlite
from loadtests.chaos_gateway import ChaosGateway

COMPARED = 0.02
"""Share of answers that are compared with the reference's in the background, in arms with learning."""
CLASSES = 0.5
"""Share of requests outside the grader's domain that are compared until their class is decided, in such arms."""
_PER_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve the day. Features that are not named are switched off."""

    name: str
    routing: bool = False
    cache: bool = False
    context: bool = False
    learning: bool = False
    fitted: bool = False
    """Whether a plan is used that was fitted on the other split's outcomes."""
    warm: bool = False
    """Whether a part of another day is served first."""


REFERENCE = Arm("reference")
ALL = Arm("all on", routing=True, cache=True, context=True, learning=True, fitted=True, warm=True)
COLD = Arm("cold start", routing=True, cache=True, context=True, learning=True)
ALONE = (
    Arm("routing", routing=True),
    Arm("fitted plan", routing=True, fitted=True),
    Arm("cache", cache=True),
    Arm("context", context=True),
)
ARMS = (REFERENCE, ALL, COLD)


class DayGateway(ChaosGateway):
    """`thriftgate serve` with the arm's policies; a team for each pool."""

    def __init__(
        self,
        home: Path,
        arm: Arm,
        mixture: Mapping[str, Any],
        prices: Mapping[str, Price],
        port: int,
        plans: Sequence[Path],
    ) -> None:
        database = Sqlite(home / "ledger.sqlite")
        super().__init__(home, database, port, workers=1)
        for policy in (home / "policies").iterdir():
            policy.unlink()
        config = {
            "backends": [_backend(model, mixture, price, port) for model, price in prices.items()],
            "local_model": {"enabled": False},
            "telemetry": {"access_log": False},
            "learning": {"cache_checks": 0},
            "requests": {"lag": 5},
            "ledger": {"database_url": database.url},
            **({"routing": {"plan_file": [str(plan) for plan in plans]}} if arm.fitted else {}),
        }
        (home / "gateway.yaml").write_bytes(orjson.dumps(config))  # JSON is YAML
        for team, pool in teams_of(mixture).items():
            values = policy_of(team, mixture["pools"][pool], arm, mixture["quality"])
            (home / "policies" / f"{team}.yaml").write_bytes(orjson.dumps(values))

    def start(self) -> None:
        """Returns when it is ready. Raises RuntimeError if it does not become ready."""
        with (self.home / "log").open("ab") as log:
            words = [sys.executable, "-m", "loadtests.day_worker", str(self.home), str(self.port)]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.wait_for(process)


def teams_of(mixture: Mapping[str, Any]) -> dict[str, str]:
    """Team → pool. Each stratum has a team for each of its pools, so that the ledger tells the strata apart."""
    return {team_of(stratum, pool): pool for stratum, pools in mixture["strata"].items() for pool in pools}


def team_of(stratum: str, pool: str) -> str:
    return f"{stratum}.{pool}"


def policy_of(team: str, models: list[str], arm: Arm, quality: float) -> dict[str, Any]:
    """The policy of a team. Agents and embeddings name their model themselves."""
    rule = {"candidates": models, "baseline": models[0], "quality": quality}
    return {
        "team": team,
        "models": {"auto": rule if arm.routing and len(models) > 1 else models[0]},
        "cache": {"enabled": arm.cache},
        "context": {"enabled": False, "prompt_cache": "client", "old_outputs": "keep"} if not arm.context else {},
        "learning": {
            "share": COMPARED if arm.learning and len(models) > 1 else 0,
            "classes": CLASSES if arm.learning and len(models) > 1 else 0,
        },
    }


def _backend(model: str, mixture: Mapping[str, Any], price: Price, port: int) -> dict[str, Any]:
    kind = "anthropic" if "claude-opus" in model else "openai"
    classes = {
        name: value / _PER_MILLION
        for name in ("input", "output", "cached_input", "cache_write_5m", "cache_write_1h")
        if (value := getattr(price, name)) is not None
    }
    return {
        "name": model,
        "kind": kind,
        "base_url": f"http://127.0.0.1:{port}/v1",
        "model": model,
        "location": "hosted",
        "tier": "small" if model in mixture["small"] else "large",
        "capabilities": ["tools"],
        "prompt_cache": True,  # the scripted provider bills as Anthropic's and OpenAI's own addresses do
        "concurrent": 256,
        "price": classes,
    }
