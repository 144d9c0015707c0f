"""Reads and writes a plan as a JSON file. Only the weights of its classifier are stored as compressed arrays."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.routing.difficulty.weights_file import ArtefactError
from gateway.routing.strategy.models import ModelAdequacies
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.prompt_features import PromptFeatures
from gateway.routing.strategy.strategy import State, Step, Strategy

FORMAT = "thriftgate router 1"
LARGEST = 64 << 20
"""Maximum bytes of one decompressed array."""


def save_plan(plan: Plan, path: Path) -> None:
    """Write the plan to a file. An older file is replaced atomically. Raises OSError."""
    content = {
        "format": FORMAT,
        "models": plan.models,
        "prices": plan.prices,
        "provenance": plan.provenance,
        "strategies": [_strategy(each) for each in plan.strategies],
        "singles": [_strategy(each) for each in plan.singles],
        "reserves": [_strategy(each) for each in plan.reserves],
        "features": _features(plan.features),
        "adequacies": None if plan.adequacies is None else {k: _packed(v) for k, v in plan.adequacies.arrays().items()},
    }
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    fresh.replace(path)


def load_plan(path: Path) -> Plan:
    """Read a plan from a file. Raises ArtefactError, OSError."""
    return read_plan(path.read_bytes(), str(path))


def read_plan(data: bytes, name: str) -> Plan:
    """Parse a plan. `name`: the file's name, for error messages. Raises ArtefactError."""
    try:
        content = orjson.loads(data)
        if content["format"] != FORMAT:
            raise ArtefactError(f"{name}: made for another version; fit it anew with `thriftgate router fit`")
        models = tuple(content["models"])
        packed = content["adequacies"]
        plan = Plan(
            models,
            tuple(_read_strategy(each) for each in content["strategies"]),
            tuple(_read_strategy(each) for each in content["singles"]),
            tuple(_read_strategy(each) for each in content["reserves"]),
            None if packed is None else ModelAdequacies.read(models, {k: _unpacked(v) for k, v in packed.items()}),
            _read_features(content["features"]),
            content["provenance"],
            _read_prices(content.get("prices", {})),
        )
    except ArtefactError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise ArtefactError(f"{name}: not a router artefact; make one with `thriftgate router fit`") from error
    if not plan.strategies or not all(
        each.models <= set(models) for each in (*plan.strategies, *plan.singles, *plan.reserves)
    ):
        raise ArtefactError(f"{name}: its strategies call models that it does not list; fit it anew")
    return plan


def _strategy(one: Strategy) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "description": one.description,
        "quality": round(one.quality, 6),
        "usd": _short(one.usd),
        "ranking": one.ranking,
        "asks": {model: {"calls": round(each.calls, 4), "usd": _short(each.usd)} for model, each in one.asks.items()},
        "doubts": {model: _short(error) for model, error in one.doubts.items()},
        "states": [
            {"asked": dict(zip(names, labels, strict=True)), "serve": state.serve, "ask": dict(state.ask)}
            for (names, labels), state in one.states.items()
        ],
    }


def _read_strategy(one: Mapping[str, Any]) -> Strategy:
    states = {}
    for state in one["states"]:
        names = tuple(sorted(state["asked"]))
        ask = {str(model): tuple(float(value) for value in worth) for model, worth in state["ask"].items()}
        states[names, tuple(int(state["asked"][name]) for name in names)] = State(str(state["serve"]), ask)
    if not states[(), ()].ask:
        raise ValueError("a strategy calls no model")
    return Strategy(
        str(one["kind"]),
        str(one["description"]),
        float(one["quality"]),
        float(one["usd"]),
        states,
        tuple(one["ranking"]),
        {model: Step(float(each["calls"]), float(each["usd"])) for model, each in one.get("asks", {}).items()},
        {str(model): float(error) for model, error in one.get("doubts", {}).items()},
    )


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _read_prices(given: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    return {str(model): (float(one), float(other)) for model, (one, other) in given.items()}


def _features(one: PromptFeatures | None) -> dict[str, Any] | None:
    return None if one is None else {"mean": one.mean, "directions": one.directions, "length": one.length}


def _read_features(one: Mapping[str, Any] | None) -> PromptFeatures | None:
    if one is None:
        return None
    mean, deviation = (float(value) for value in one["length"])
    return PromptFeatures(
        tuple(map(float, one["mean"])), tuple(tuple(map(float, each)) for each in one["directions"]), (mean, deviation)
    )


def _packed(array: NDArray[np.generic]) -> dict[str, Any]:
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
    return {"type": array.dtype.str, "shape": array.shape, "zlib": data}


def _unpacked(one: Mapping[str, Any]) -> NDArray[np.generic]:
    kind = np.dtype(str(one["type"]))
    if kind.kind not in "iuf":
        raise ValueError("only plain numbers are read")
    unpack = zlib.decompressobj()
    data = unpack.decompress(base64.b64decode(one["zlib"], validate=True), LARGEST)
    return np.frombuffer(data, kind).reshape([int(size) for size in one["shape"]])
