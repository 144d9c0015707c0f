"""Estimates the strength and the speed of an open model from its number of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.domain.backend import Strength

LARGE_FROM = 20.0
"""Minimum billions of parameters of a model that counts as `large`. The number is an assumption: among today's open
models, the models that come close to hosted models have about 24 billion parameters or more."""
_BILLIONS_PER_SECOND = 320.0
"""Billions of active parameters that one machine reads per second. Assumes 4-bit weights and about 200 GB/s, the memory
bandwidth of a desktop GPU or of a notebook with fast memory."""
_SLOWEST, _FASTEST = 2.0, 200.0
_COUNT = re.compile(r"(?<![a-z0-9.])(?:(\d{1,2})x)?(\d{1,4}(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
"""Matches a number of parameters in a model's name: `8b`, `0.5B`, `135M`, `8x7b`."""
_ACTIVE = re.compile(r"(?<![a-z0-9.])a(\d{1,3}(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
"""Matches a number of active parameters in a model's name. In `30b-a3b`, 3 of 30 billion parameters are active."""
_UNITS = {"b": 1.0, "m": 1e-3}


class ModelSize(NamedTuple):
    """The size of a model: all parameters, and the parameters that are active for one token. Both in billions."""

    total: float
    active: float

    @property
    def strength(self) -> Strength:
        return "large" if self.total >= LARGE_FROM else "small"

    @property
    def tokens_per_second(self) -> float:
        """Assumed tokens per second of one answer. Used until the speed has been measured."""
        return round(min(max(_BILLIONS_PER_SECOND / self.active, _SLOWEST), _FASTEST), 1)


def size_of(model: Mapping[str, Any]) -> ModelSize | None:
    """The size of a model in an answer to `GET /v1/models` or to Ollama's `GET /api/tags`. It is read from a field or
    from the model's name; None if both do not state it."""
    name = str(model.get("id") or model.get("name") or "")
    total = _counted(model.get("meta"), "n_params") or _written(_field(model.get("details"), "parameter_size"))
    total = total or _written(name)
    if total is None:
        return None
    active = _ACTIVE.search(name)
    return ModelSize(total, min(total, float(active[1])) if active else total)


def _field(section: object, name: str) -> str:
    value = section.get(name) if isinstance(section, dict) else None
    return value if isinstance(value, str) else ""


def _counted(section: object, name: str) -> float | None:
    value = section.get(name) if isinstance(section, dict) else None
    return value / 1e9 if isinstance(value, int | float) and value > 0 else None


def _written(text: str) -> float | None:
    """The largest number of parameters in `text`, in billions. For a model with several experts, the sum over all
    experts."""
    found = [float(experts or 1) * float(count) * _UNITS[unit.lower()] for experts, count, unit in _COUNT.findall(text)]
    return max((one for one in found if one > 0), default=None)
