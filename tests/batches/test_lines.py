from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from gateway.batches import lines
from gateway.batches.forms import FORMS
from tests.batches.conftest import URL, jsonl, line


def check(tmp_path: Path, data: bytes, max_bytes: int = 10_000) -> lines.Checked:
    path = tmp_path / "lines"
    path.write_bytes(data)
    return lines.check(path, FORMS[URL], max_bytes, 1000)


def test_good_lines_have_no_problems_and_blank_ones_do_not_count(tmp_path: Path) -> None:
    checked = check(tmp_path, jsonl(line("a"), line("b")) + b"\n  \n" + orjson.dumps(line("c")))
    assert (checked.total, checked.problems) == (3, [])


@pytest.mark.parametrize(
    ("bad", "param", "told"),
    [
        (b"{]\n", None, "not valid JSON"),
        (b"[1]\n", None, "not a JSON object"),
        (jsonl(line("a")), "custom_id", "already used by line 1"),
        (jsonl(line("")), "custom_id", "1 to 256"),
        (jsonl(line("b") | {"custom_id": 7}), "custom_id", "string"),
        (jsonl(line("b", method="GET")), "method", "POST"),
        (jsonl(line("b", url="/v1/embeddings")), "url", URL),
        (jsonl(line("b", body="hello")), "body", "object"),
        (jsonl(line("b", "x" * 20_000)), None, "longer than 10000 bytes"),
    ],
)  # fmt: skip
def test_a_bad_line_is_told_with_its_number(tmp_path: Path, bad: bytes, param: str | None, told: str) -> None:
    checked = check(tmp_path, jsonl(line("a")) + b"\n" + bad + jsonl(line("z")))
    assert checked.total == 3
    (problem,) = checked.problems
    assert (problem["line"], problem["param"]) == (3, param)
    assert told in problem["message"]


@pytest.mark.parametrize("body", [{"model": "auto", "messages": []}, line("b")["body"] | {"stream": True}, {}])
def test_what_is_wrong_with_a_request_is_left_for_its_result(tmp_path: Path, body: object) -> None:
    assert check(tmp_path, jsonl(line("a"), line("b", body=body))).problems == []


def test_a_file_without_lines_or_with_too_many_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = check(tmp_path, b"\n").problems
    assert problem["line"] is None
    assert "no requests" in problem["message"]
    monkeypatch.setattr(FORMS[URL], "most", 2)
    assert check(tmp_path, jsonl(line("a"), line("b"))).problems == []
    (problem,) = check(tmp_path, jsonl(line("a"), line("b"), line("c"), line("d"))).problems
    assert "more than 2 requests" in problem["message"]


def test_only_so_many_mistakes_are_told(tmp_path: Path) -> None:
    assert len(check(tmp_path, b"x\n" * 1000).problems) == lines.MAX_PROBLEMS
