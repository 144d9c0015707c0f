"""The access log: one line per request, without prompts or keys. The lines are JSON; on a terminal they are short
text.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from typing import Any

import orjson

from gateway.domain.record import Record
from gateway.domain.text.visible import visible, visible_json
from gateway.domain.units import cents

log = logging.getLogger(__name__)


class AccessLog:
    """Writes the access log. Lines wait in a buffer of limited length until `flush` writes them. `flush` may block, so
    call it in a thread."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._waiting: deque[dict[str, Any]] = deque(maxlen=100_000)

    def request(self, record: Record) -> None:
        if not self._enabled:
            return
        served = record.served_by
        usage = served.usage if served else None
        self._waiting.append(
            {
                "at": round(record.started_at, 3),
                "request": record.request_id,
                "team": record.tenant.team,
                "key": record.tenant.key.id,
                "model": record.model,
                "backend": served.backend.name if served else None,
                "status": record.status,
                "error": record.error or None,
                "stream": record.stream,
                "cache": record.cache,
                "difficulty": record.difficulty,
                "attempts": len(record.attempts),
                "escalated": record.escalated,
                "in": usage.all_input if usage else 0,
                "out": usage.all_output if usage else 0,
                "trimmed": record.trimmed_tokens,
                "cost_pico": record.cost_pico,
                "first_byte_ms": record.first_byte_ms,
                "ms": record.duration_ms,
                "degraded": sorted(record.degraded) or None,
            }
        )

    def refusal(self, request_id: str, status: int, code: str, path: str) -> None:
        """Log a request that was refused before its team was known, for example because of an invalid key."""
        if self._enabled:
            line = {"at": round(time.time(), 3), "request": request_id, "status": status, "error": code}
            self._waiting.append({**line, "path": path[:200]})

    def flush(self) -> None:
        """Write all waiting lines in one call. Lines that standard output does not accept are lost."""
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not lines:
            return
        try:
            if sys.stdout.isatty():
                sys.stdout.write("".join(f"{visible(readable(each))}\n" for each in lines))
            else:
                sys.stdout.write(visible_json(b"\n".join(map(orjson.dumps, lines)).decode()) + "\n")
            sys.stdout.flush()
        except OSError as error:
            log.warning("the access log cannot be written, %d lines are lost: %s", len(lines), error)

    def __len__(self) -> int:
        return len(self._waiting)


def readable(line: dict[str, Any]) -> str:
    """A line of the access log for people: local time, status, team, the backend or cache that answered, tokens,
    cost, duration, request id.
    """
    at = time.strftime("%H:%M:%S", time.localtime(line["at"]))
    if "team" not in line:
        return f"{at} {line['status']} {line['error']} {line['path']} {line['request']}"
    answered = line["backend"] or (f"cache {line['cache']}" if line["cache"] in ("exact", "semantic") else "no backend")
    words = [at, str(line["status"]), line["team"], f"{line['model']} → {answered}"]
    words += [line["error"]] if line["error"] else []
    words.append(f"{line['in']}+{line['out']} tokens")
    if line["cost_pico"] is not None:
        words.append(f"${cents(line['cost_pico'])}")
    elif line["backend"]:
        words.append("cost unknown")
    words += [] if line["ms"] is None else [f"{line['ms']:.0f} ms"]
    return "  ".join([*words, line["request"]])
