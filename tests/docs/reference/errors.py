"""The table of errors: status, type and retry of every code that a client can be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson

from gateway import errors
from gateway.dialects.anthropic_messages import dialect as anthropic_messages
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.errors import AllBackendsFailed, BackendFailed, BackendOverloaded, BackendRateLimited

DIALECTS = (openai_chat, anthropic_messages)


def every_error() -> Iterator[errors.GatewayError]:
    """Everything that a client may be told, but for a backend's own refusals; subclasses after their class."""
    yield from (each("so it is") for each in _classes(errors.GatewayError))
    yield errors.StreamBroken("so it is")
    yield AllBackendsFailed([])
    yield from (AllBackendsFailed([failure("x")]) for failure in (BackendFailed, BackendOverloaded, BackendRateLimited))


def _classes(error: type[errors.GatewayError]) -> Iterator[type[errors.GatewayError]]:
    yield error
    for sub in error.__subclasses__():
        if sub not in (errors.BackendError, AllBackendsFailed):
            yield from _classes(sub)


def errors_table(kept: Mapping[str, str], arguments: tuple[str, ...]) -> str:
    rows: dict[str, list[list[str]]] = {}
    for error in every_error():
        shapes = [f"{dialect.status(error)} `{_type(dialect.error_body(error, ''))}`" for dialect in DIALECTS]
        rows.setdefault(error.code, []).append([*shapes, str(error.retryable).lower(), f"`{type(error).__name__}`"])
    lines = ["| `error.code` | OpenAI | Anthropic | retry | class | cause and remedy |", "|---|---|---|---|---|---|"]
    for code, found in sorted(rows.items(), key=lambda row: (row[1][0][0][:3], row[0])):
        cells = [", ".join(sorted(set(column))) for column in zip(*found, strict=True)]
        lines.append(f"| `{code}` | {' | '.join(cells)} | {kept.get(code, '')} |")
    return "\n".join(lines) + "\n"


def _type(body: bytes) -> str:
    kind: str = orjson.loads(body)["error"]["type"]
    return kind
