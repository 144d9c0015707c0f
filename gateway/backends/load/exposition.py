"""Parses `/metrics` of llama.cpp, vLLM and SGLang (Prometheus text format)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

RUNNING = ("llamacpp:requests_processing", "vllm:num_requests_running", "sglang:num_running_reqs")
WAITING = ("llamacpp:requests_deferred", "vllm:num_requests_waiting", "sglang:num_queue_reqs")
KV_USED = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
"""0..1; vLLM renamed its own, and llama.cpp has none any more."""
WRITTEN = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")
"""Counters that grow while an answer is written. llama.cpp's (`tokens_predicted_total`) grows only at its end."""
STEPS, PER_STEP = "llamacpp:n_decode_total", "llamacpp:n_busy_slots_per_decode"
"""llama.cpp's calls of the model so far, and the requests that took part in each, on average: their product is the
tokens written so far, and a little more, since steps that read a prompt are among them."""
_RATE = "sglang:gen_throughput"

_WANTED = frozenset((*RUNNING, *WAITING, *KV_USED, *WRITTEN, STEPS, PER_STEP, _RATE))


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a server. Figures of several models or engines behind one address are added up."""

    running: float
    waiting: float
    kv_used: float | None = None
    """0..1, of the fullest engine."""
    written: float | None = None
    """Tokens since it started."""
    tokens_per_second: float | None = None
    """As the server itself says."""


def read(text: str) -> Reading | None:
    """None where nothing tells how many requests there are: not a model server, or one with metrics switched off.

    Takes time in proportion to `text`: of a long one call it in a thread. Never raises, whatever `text` is.
    """
    found = _samples(text)
    running = _sum(found, RUNNING)
    if running is None:
        return None
    steps, per_step = _sum(found, (STEPS,)), _sum(found, (PER_STEP,))
    written = steps * per_step if steps is not None and per_step is not None else _sum(found, WRITTEN)
    used = [value for name in KV_USED for value in found.get(name, ())]
    return Reading(
        running,
        _sum(found, WAITING) or 0.0,
        min(1.0, max(used)) if used else None,
        written,
        _sum(found, (_RATE,)),
    )


def _samples(text: str) -> dict[str, list[float]]:
    """Name → finite, non-negative values. Only lines that are wanted are parsed: vLLM writes some thousand others."""
    from prometheus_client.parser import text_string_to_metric_families  # most gateways have no server to ask

    found: dict[str, list[float]] = {}
    for line in _wanted(text):
        try:
            samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
        except (ValueError, IndexError, KeyError):  # it is somebody else's text
            continue
        for sample in samples:
            if math.isfinite(sample.value) and sample.value >= 0:
                found.setdefault(sample.name, []).append(sample.value)
    return found


def _wanted(text: str) -> Iterable[str]:
    for line in text.splitlines():
        if line and line[0] != "#" and line.partition("{")[0].partition(" ")[0] in _WANTED:
            yield line


def _sum(found: dict[str, list[float]], names: Iterable[str]) -> float | None:
    values = [value for name in names for value in found.get(name, ())]
    return sum(values) if values else None
