"""Each form that the code keeps for speed does what the plain one does, and names a file that exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.shortcuts import main, measure, shortcuts

REPOSITORY = Path(__file__).parents[2]


def test_both_forms_agree_and_are_timed() -> None:
    with shortcuts() as all_of_them:
        assert all_of_them
        for shortcut in all_of_them:
            timing = measure(shortcut, rounds=1, round_s=0.001)
            assert min(timing.kept_ns, timing.plain_ns, timing.ratio) > 0
            assert (REPOSITORY / shortcut.module).is_file()


def test_the_table_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rounds", "1"])
    assert "has_any" in capsys.readouterr().out
