"""Histograms of the duration of requests and backend calls, under OpenTelemetry's names, counted without
OpenTelemetry's SDK.

The histograms are exported over OTLP only; `/metrics` has separate histograms with fewer labels.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial

from gateway.domain.provider_name import UNKNOWN
from gateway.domain.record import Attempt, Record
from gateway.telemetry import attributes as names
from gateway.telemetry.metrics import Histogram, Labels

MOST_MODELS = 200
"""Maximum number of models with a series of their own. Any further model is exported as `_OTHER` (`UNKNOWN`), because a
wildcard in a policy lets clients invent names."""
DURATIONS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKENS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the buckets in seconds, as the semantic conventions recommend them for the time to the first
token."""

_SHARED = (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.RESPONSE_MODEL, names.ERROR_TYPE)
OF_REQUESTS = (*_SHARED, names.CACHE)
OF_CALLS = (*_SHARED, names.BACKEND)
"""Names of the attributes of a series of backend calls. Empty attributes are not exported."""

Series = defaultdict[Labels, Histogram]


@dataclass(frozen=True, slots=True)
class Instrument:
    name: str
    description: str
    labels: Labels
    series: Series


class Latencies:
    """The durations that this worker has measured since its start."""

    def __init__(self) -> None:
        self.requests: Series = defaultdict(partial(Histogram, DURATIONS))
        self.first_tokens: Series = defaultdict(partial(Histogram, FIRST_TOKENS))
        self.calls: Series = defaultdict(partial(Histogram, DURATIONS))
        self.first_chunks: Series = defaultdict(partial(Histogram, DURATIONS))
        self.instruments = (
            Instrument(
                names.REQUEST_DURATION, "Duration of requests, to the end of the answer.", OF_REQUESTS, self.requests
            ),
            Instrument(names.FIRST_TOKEN, "Time to the first token of streams.", OF_REQUESTS, self.first_tokens),
            Instrument(names.OPERATION_DURATION, "Duration of backend calls.", OF_CALLS, self.calls),
            Instrument(names.FIRST_CHUNK, "Time to the first chunk of backends' streams.", OF_CALLS, self.first_chunks),
        )
        self._models: set[str] = set()

    def add(self, record: Record) -> None:
        """Add the durations of a finished request and its backend calls."""
        asked, served = names.operation(record.dialect), record.served_by
        for attempt in record.attempts:
            self._call(attempt, asked)
        provider = served.backend.provider_name if served else ""
        answered = served.backend.model if served and not record.error else ""
        key = (asked, provider, self._model(record, served), answered, record.error, record.cache)
        self.requests[key].add((record.duration_ms or 0.0) / 1000)
        if record.stream and record.first_byte_ms is not None and not record.error:
            first = record.first_byte_ms / 1000
            if served is not None and served.spoke_at is not None:  # bytes before it may have contained no token
                first = max(first, served.spoke_at - record.started_at)
            self.first_tokens[key].add(first)

    def _call(self, attempt: Attempt, asked: str) -> None:
        if attempt.ended_at is None:
            return
        backend, error = attempt.backend, attempt.error
        key = (asked, backend.provider_name, backend.model, "" if error else backend.model, error, backend.name)
        self.calls[key].add(max(0.0, attempt.ended_at - attempt.started_at))
        if attempt.spoke_at is not None and attempt.first_byte_at is not None:  # a stream
            self.first_chunks[key].add(max(0.0, attempt.first_byte_at - attempt.started_at))

    def _model(self, record: Record, served: Attempt | None) -> str:
        """The model name that labels a series. This is the requested model, or `UNKNOWN` if there are `MOST_MODELS`
        models already. It is empty if no backend answered. `served`: the attempt with the answer.
        """
        if served is None and record.error:
            return ""
        model = record.model
        if model not in self._models:
            if len(self._models) >= MOST_MODELS:
                return UNKNOWN
            self._models.add(model)
        return model
