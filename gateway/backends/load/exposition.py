"""Parses the `/metrics` output of llama.cpp, vLLM and SGLang (Prometheus text format)."""

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
"""Names of the metrics for the share of the KV cache that is in use (0 to 1). vLLM has renamed its metric, so there are
two names for vLLM. Newer versions of llama.cpp have no such metric."""
WRITTEN = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")
"""Names of the counters of generated tokens that grow during an answer. llama.cpp's `tokens_predicted_total` is not in
the list, because it grows only at the end of an answer."""
STEPS, PER_STEP = "llamacpp:n_decode_total", "llamacpp:n_busy_slots_per_decode"
"""Two metrics of llama.cpp: the number of decode calls, and the average number of requests in each call. The product of
both is the number of generated tokens. It is slightly too high, because calls that read a prompt are included."""
_RATE = "sglang:gen_throughput"

_WANTED = frozenset((*RUNNING, *WAITING, *KV_USED, *WRITTEN, STEPS, PER_STEP, _RATE))


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one scrape of a server. If several models or engines share one address, the values of all are
    summed, except `kv_used`."""

    running: float
    waiting: float
    kv_used: float | None = None
    """Share of the KV cache in use, 0 to 1. If the server runs several engines, this is the highest share of any
    engine. None if the server does not report it."""
    written: float | None = None
    """Tokens generated since the server started; None if the server does not report them."""
    tokens_per_second: float | None = None
    """Generated tokens per second, as the server itself reports them; None if the server does not report them."""


def read(text: str) -> Reading | None:
    """Parse the text of a scrape. Returns None if the text does not contain the number of running requests. Never
    raises. A long text should be parsed in a thread."""
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
    """Metric name → its values that are finite and not negative. Parses only the lines of the metrics used here,
    because vLLM exports thousands of other lines."""
    from prometheus_client.parser import text_string_to_metric_families  # here, because few gateways scrape

    found: dict[str, list[float]] = {}
    for line in _wanted(text):
        try:
            samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
        except (ValueError, IndexError, KeyError):  # the text comes from another system
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
