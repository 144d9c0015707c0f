from __future__ import annotations

import resource
from pathlib import Path

import pytest

from gateway.batches.forms import FORMS
from gateway.batches.results import Results
from tests.batches.conftest import URL


def result(custom_id: str) -> bytes:
    return FORMS[URL].answered(custom_id, 200, "req_1", b"{}")


def opened(tmp_path: Path) -> Results:
    return Results(tmp_path / "output", tmp_path / "error", FORMS[URL])


def test_results_are_found_again_and_a_line_cut_short_is_dropped(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results.add("a", result("a"), failed=False)
    results.add("b", result("b"), failed=True)
    results.close()
    with (tmp_path / "output").open("ab") as file:
        file.write(result("c")[:-1])
    results = opened(tmp_path)
    assert results.done == {"a", "b"}
    assert (results.output.lines, results.errors.lines) == (1, 1)
    results.add("c", result("c"), failed=False)
    assert (tmp_path / "output").read_bytes() == result("a") + result("c")
    assert results.output.size == len(result("a") + result("c"))
    results.close()


def test_a_result_that_the_disk_took_half_of_can_be_added_again(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results.add("a", result("a"), failed=False)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(result("a")) + 10, before[1]))
    try:
        with pytest.raises(OSError, match="output"):
            results.add("b", result("b"), failed=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert results.done == {"a"}
    results.add("b", result("b"), failed=False)
    results.close()
    assert (tmp_path / "output").read_bytes() == result("a") + result("b")


def test_nothing_is_written_once_it_is_closed(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        results.add("a", result("a"), failed=False)
