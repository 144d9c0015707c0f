"""Tests whether backends answer and accept the gateway's key. The test costs nothing, because it reads only the
backends' lists of models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import orjson

from gateway.backends.call import OPERATOR_ERRORS, operator_error
from gateway.backends.fleet import KINDS
from gateway.backends.providers.over_http import OverHttp
from gateway.domain.backend import Backend
from gateway.errors import BackendError
from gateway.settings.files import ConfigError

WITHIN_S = 5.0
_NO_LIST = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of the test of one backend."""

    name: str
    trouble: str = ""
    """The reason why calls would fail, and the remedy; empty if the backend answered."""
    note: str = ""
    """A remark for people: what was not tested, or that the backend is simulated. Empty if there is no remark."""
    doubt: str = ""
    """A fact that looks wrong, although calls may work; empty if there is none."""
    took_ms: float | None = None
    """Milliseconds that the answer took; None if the backend was not called."""


async def reach_all(backends: Sequence[Backend], within_s: float = WITHIN_S) -> list[Reached]:
    """Test all backends at once. Takes at most about `within_s` seconds."""
    return list(await asyncio.gather(*(reach(backend, within_s) for backend in backends)))


async def reach(backend: Backend, within_s: float = WITHIN_S) -> Reached:
    """Test one backend, in about `within_s` seconds. Problems of the backend are in the result; they are never
    raised."""
    name, own = backend.name, backend.facts.preset_of or backend.kind
    if own == "simulated":
        return Reached(name, note="simulated, not a real model")
    if own == "litellm":
        if find_spec("litellm") is None:
            return Reached(name, "it needs litellm, which is not installed: pip install 'thriftgate[litellm]'")
        return Reached(name, note="called by litellm, not tested")
    try:
        kind = KINDS[own](backend)
    except ValueError as error:
        return Reached(name, f"its base_url cannot be used: {error}")
    if not isinstance(kind, OverHttp):
        return Reached(name, note="not tested")
    began = time.monotonic()
    try:
        await kind.open()
        status, body = await kind.look(within_s)
    except BackendError as error:
        hint = "" if error.needs_operator else "; check its `base_url` and that it is running"
        return Reached(name, _without_name(error.message, name) + hint)
    except ConfigError as error:
        return Reached(name, str(error))
    finally:
        await kind.aclose()
    took_ms = round((time.monotonic() - began) * 1000, 1)
    if kind.models_path is None:
        return Reached(name, note="answers; whether it accepts the credentials is not tested", took_ms=took_ms)
    return _judged(backend, status, body, took_ms)


def _judged(backend: Backend, status: int, body: bytes, took_ms: float) -> Reached:
    name = backend.name
    if status in _NO_LIST:
        return Reached(name, note="answers, but has no list of models; its key is not tested", took_ms=took_ms)
    if status in OPERATOR_ERRORS or 300 <= status < 400:
        return Reached(name, f"{operator_error(backend, status)} (status {status})", took_ms=took_ms)
    if status >= 500:
        return Reached(name, f"fails (status {status})", took_ms=took_ms)
    known = _models(body)
    name_sent = backend.sent_model
    # Google lists names with a prefix, and Ollama names without a tag with its default tag
    if known and not {backend.model, name_sent, f"models/{name_sent}", f"{name_sent}:latest"} & known:
        return Reached(name, doubt=f"its list of models does not have {name_sent}", took_ms=took_ms)
    return Reached(name, took_ms=took_ms)


def _models(body: bytes) -> set[str]:
    """The ids in a list of models; empty if the list cannot be read."""
    try:
        listed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return set()
    rows = (listed.get("data") or listed.get("models")) if isinstance(listed, Mapping) else None
    named = [row.get("id") or row.get("name") for row in rows or () if isinstance(row, Mapping)]
    return {each for each in named if isinstance(each, str)}


def _without_name(message: str, name: str) -> str:
    return message.removeprefix(f"{name} ")
