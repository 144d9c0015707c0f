"""No line of the log is longer than a terminal can show, and a terminal obeys none."""

from __future__ import annotations

import io
import logging

from gateway.telemetry.log_lines import LONGEST, LogLines


def test_long_messages_and_long_errors_are_cut_line_by_line() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogLines("%(message)s"))
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


def test_control_and_invisible_characters_are_written_out_within_the_line_s_length() -> None:
    record = logging.LogRecord("n", logging.INFO, "", 0, "red %s and %s", ("\x1b[31m", "\U000e0041" * 5000), None)
    text = LogLines("%(message)s").format(record)
    assert text.startswith("red \\x1b[31m and \\U000e0041")
    assert len(text) == LONGEST
    assert text[:-1].isascii()
