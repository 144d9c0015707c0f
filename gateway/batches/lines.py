"""Validates a file with one request per line before a batch is made of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.batches.forms import Form
from gateway.dialects.requests.body_extent import check_extent
from gateway.errors import BadRequest, GatewayError

MAX_PROBLEMS = 100
"""Maximum mistakes that are reported for one file."""
_HANDFUL, _PAUSE_S = 32, 0.0005


@dataclass(slots=True)
class Checked:
    """The result of validating a whole file."""

    total: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Mistakes in OpenAI's format, each with code, message, param and line."""
    models: set[str] = field(default_factory=set)
    """The models that the requests name."""

    def add(self, error: GatewayError, line: int | None) -> None:
        problem = {"code": error.code, "message": error.message, "param": error.param, "line": line}
        self.problems.append(problem)


def numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) for each line of the file. Raises OSError. This blocks, with pauses in which the event loop
    can work."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            yield number, raw
            if number % _HANDFUL == 0:
                time.sleep(_PAUSE_S)


def check(path: Path, form: Form, max_bytes: int, max_items: int) -> Checked:
    """Validate a whole file. `max_bytes`: maximum bytes of one line. `max_items`: maximum number of JSON objects and
    arrays in one line. This blocks.

    Raises OSError.
    """
    checked = Checked()
    seen: dict[str, int] = {}
    for number, raw in numbered(path):
        if not raw.strip():
            continue
        checked.total += 1
        try:
            _check_size(raw, max_bytes, max_items)
            _check(number, raw, form, seen, checked.models)
        except BadRequest as error:
            checked.add(error, number)
        if checked.total > form.most:
            checked.add(BadRequest(f"There are more than {form.most} requests; split them."), None)
        if len(checked.problems) >= MAX_PROBLEMS or checked.total > form.most:
            break
    if not checked.total:
        checked.add(BadRequest("There are no requests."), None)
    return checked


def _check_size(raw: bytes, max_bytes: int, max_items: int) -> None:
    if len(raw) > max_bytes:
        raise BadRequest(f"This is longer than {max_bytes} bytes, the limit of a request.")
    check_extent(raw, max_items)


def _check(number: int, raw: bytes, form: Form, seen: dict[str, int], models: set[str]) -> None:
    line = form.read(number, raw)
    first = seen.setdefault(line.custom_id, number)
    if first != number:
        raise BadRequest(f"custom_id {line.custom_id!r} is already used by {form.place(first)}.", param="custom_id")
    if isinstance(model := line.fields.get("model"), str):
        models.add(model)
