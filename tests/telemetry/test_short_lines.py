"""No line of the log is longer than a terminal can show."""

from __future__ import annotations

import io
import logging

from gateway.telemetry.short_lines import LONGEST, ShortLines


def test_long_messages_and_long_errors_are_cut_line_by_line() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ShortLines("%(message)s"))
    log = logging.Logger("of this test")
    log.addHandler(handler)
    log.warning("what a client sent: %s", "x" * 10_000)
    try:
        raise KeyError("y" * 10_000)
    except KeyError:
        log.exception("it failed")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("what a client sent: xxx")
    assert lines[1] == "it failed"
    assert lines[-1].startswith("KeyError: 'yyy")
    assert max(map(len, lines)) == LONGEST
