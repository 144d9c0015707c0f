from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.batches import inline
from gateway.batches.inline import Requests
from gateway.errors import BadRequest, BodyTooLarge

REQUESTS: list[dict[str, Any]] = [
    {"custom_id": f"a{number}", "params": {"x": 'q"uo\\te {[', "y": [1, {"z": []}], "text": "\n" * 9 + "ü" * number}}
    for number in range(20)
]


def cut(body: bytes, size: int = 10**6, longest: int = 10_000, most: int = 100) -> list[bytes]:
    lines: list[bytes] = []
    requests = Requests(lines.append, longest, most)
    for start in range(0, len(body), size):
        requests.feed(body[start : start + size])
    requests.close()
    return lines


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10**6])
@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2])
def test_the_requests_become_lines_however_the_body_is_cut(size: int, option: int) -> None:
    listed = orjson.dumps(REQUESTS, option=option)
    body = b' {"a": [1, {"requests": [{}]}], "b\\"": "{",\n"requests" :\t' + listed + b', "z": "requests"}\n'
    lines = cut(body, size)
    assert [orjson.loads(line) for line in lines] == REQUESTS
    assert all(line.index(b"\n") == len(line) - 1 for line in lines)


def test_a_request_keeps_how_it_was_written() -> None:
    assert cut(b'{"requests":[{"b":1.0,"a":1e3 , "a":"\\u00fc"}]}') == [b'{"b":1.0,"a":1e3 , "a":"\\u00fc"}\n']


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"requests":[{}', "not valid JSON"),
        (b'{"requests":[{}]', "not valid JSON"),
        (b'{"requests":[{} {}]}', "not valid JSON"),
        (b'{"requests":["', "not valid JSON"),
        (b'{"requests":["\\', "not valid JSON"),
        (b"]]]]", "not valid JSON"),
        (b'[{"requests":[{}]}]', "at least one"),
        (b'"requests"', "at least one"),
        (b"{}", "at least one"),
        (b'{"requests":[]}', "at least one"),
        (b'{"requests":{}}', "at least one"),
        (b'{"requests":null}', "at least one"),
        (b'{"requests":[{},7]}', "requests.0: must be an object"),
        (b'{"requests":["x"]}', "requests.0: must be an object"),
        (b'{"requests":[null]}', "requests.0: must be an object"),
        (b'{"requests":[[{}]]}', "requests.0: must be an object"),
        (b'{"requests":[{}],"requests":[{},{}]}', "requests.0: must be an object"),
    ],
)
@pytest.mark.parametrize("size", [1, 10**6])
def test_what_is_no_list_of_requests_is_told_so(body: bytes, told: str, size: int) -> None:
    with pytest.raises(BadRequest, match=told):
        cut(body, size)


def test_requests_have_a_largest_size_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    body = orjson.dumps({"requests": [{"x": "y"}, {"x": "y" * 50}]})
    assert len(cut(body, longest=58)) == 2
    with pytest.raises(BodyTooLarge, match=r"requests\.1: longer than 57 bytes"):
        cut(body, longest=57)
    with pytest.raises(BodyTooLarge, match="more than 1; split"):
        cut(body, most=1)
    monkeypatch.setattr(inline, "LONGEST_REST", 100)
    with pytest.raises(BodyTooLarge, match="outside of its requests"):
        cut(b'{"requests":[],"x":"%s"}' % (b"x" * 100))
