"""What is taken out of an exchange, and what stays."""

from __future__ import annotations

import time

import pytest

from tests.recorded.compare import first_difference, report
from tests.recorded.normalise import Normaliser, decoded


def digits(at: float, last: str = "0" * 20) -> bytes:
    """Of a request id made at `at` (Unix time)."""
    return f"{int(at * 1000):012x}{last}".encode()


def normaliser(*, waits: bool = False) -> Normaliser:
    return Normaliser({"search": "tg-secret"}, {9001: "chat"}, since=time.time(), waits=waits)


def test_ids_keep_their_identity_and_what_is_around_them() -> None:
    one, other = digits(time.time()), digits(time.time(), "1" * 20)
    text = b'"req_%b-1" "msg_%b00" "resp_%b" "%bi0"' % (one, one, other, one)
    assert normaliser().text(text) == b'"req_<id 1>-1" "msg_<id 1>00" "resp_<id 2>" "<id 1>i0"'


def test_digits_that_the_gateway_did_not_make_stay() -> None:
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    earlier = digits(time.time() - 3600)
    assert normaliser().text(trace + earlier) == trace + earlier


def test_only_times_within_the_run_are_replaced() -> None:
    text = b'{"created":1700000000,"completed_at":%d}' % time.time()
    assert normaliser().text(text) == b'{"created":1700000000,"completed_at":<time>}'


def test_keys_and_known_ports_are_named() -> None:
    text = b"tg-secret 127.0.0.1:9001 127.0.0.1:9002"
    assert normaliser().text(text) == b"<key of search> 127.0.0.1:<port of chat> 127.0.0.1:9002"


@pytest.mark.parametrize("reason", [b"Unprocessable Entity", b"Unprocessable Content"])
def test_a_reason_is_told_as_before_python_3_13_and_no_other_is_changed(reason: bytes) -> None:
    assert normaliser().head(b"HTTP/1.1 422 %b\r\na: b" % reason, b"") == b"HTTP/1.1 422 Unprocessable Entity\r\na: b"
    other = b"HTTP/1.1 400 Bad Request\r\nserver: HTTP/1.1 422 Unprocessable Content"
    assert normaliser().head(other, b"") == other


@pytest.mark.parametrize("waits", [False, True])
def test_waits_are_replaced_only_where_the_gateway_works_them_out(waits: bool) -> None:
    head, body = b"HTTP/1.1 429 No\r\nretry-after: 7\r\ncontent-length: 20", b"Try again in 1m0s, or"
    told = b"HTTP/1.1 429 No\r\nretry-after: <wait>\r\ncontent-length: <length>"
    assert normaliser(waits=waits).head(head, body) == (told if waits else head)
    assert normaliser(waits=waits).text(body) == (b"Try again in <wait>, or" if waits else body)


def test_a_body_without_a_coding_is_left_alone() -> None:
    assert decoded(b"HTTP/1.1 200 OK\r\ncontent-length: 2", b"hi") == (b"HTTP/1.1 200 OK\r\ncontent-length: 2", b"hi")


def test_the_first_difference_is_named_with_its_place() -> None:
    was = {"name": "a", "response": {"head": ["HTTP/1.1 200 OK", "x: 1"], "body": "Hello there"}}
    now = {"name": "a", "response": {"head": ["HTTP/1.1 200 OK", "x: 1"], "body": "Hello three"}}
    assert first_difference(was, was) == ""
    assert "response.body differs at character 8" in first_difference(was, now)
    longer = {"name": "a", "response": {"head": ["HTTP/1.1 200 OK", "x: 1", "y: 2"], "body": "Hello there"}}
    assert first_difference(was, longer) == "response.head[2] is new"


def test_recordings_without_a_case_and_cases_without_a_recording_are_told() -> None:
    one, other = {"name": "one"}, {"name": "other"}
    assert report([one], [one]) == ""
    told = report([one], [other])
    assert "one: it was recorded, but no case is called so" in told
    assert "other: there is no recording of it" in told
