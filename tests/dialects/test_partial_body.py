"""Bodies that are no answer, or only the beginning of one."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.answers.partial_body import characters_in, is_cut, reported_in
from gateway.domain.money.usage import Usage
from gateway.domain.request import DialectName
from tests.dialects.samples import steady

CHAT = orjson.dumps(
    {
        "service_tier": "flex",
        "choices": [{"message": {"role": "assistant", "content": 'say "é"', "tool_calls": []}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
        "model": "m",
    }
)
MESSAGE = orjson.dumps({"usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 2}, "content": []})
RESPONSE = orjson.dumps({"usage": {"input_tokens": 5, "output_tokens": 2}, "output": [], "service_tier": "priority"})


@pytest.mark.parametrize(
    ("dialect", "body", "read"),
    [
        ("openai_chat", CHAT, Usage(9, output_tokens=2, service_tier="flex")),
        ("openai_completions", CHAT, Usage(9, output_tokens=2, service_tier="flex")),
        ("anthropic_messages", MESSAGE, Usage(5, 7, output_tokens=2)),
        ("openai_responses", RESPONSE, Usage(5, output_tokens=2, service_tier="priority")),
        ("openai_embeddings", b'{"usage":{"prompt_tokens":3,"total_tokens":3},"data":[]}', Usage(3)),
        ("openai_other", b'{"usage":{"total_tokens":3},"data":[]}', Usage(3)),
    ],
)
@pytest.mark.parametrize("missing", [0, 1])
def test_what_a_body_reports_is_found_also_when_its_end_is_missing(
    dialect: DialectName, body: bytes, read: Usage, missing: int
) -> None:
    found = reported_in(body[: len(body) - missing], dialect)
    if missing and body is RESPONSE:  # the tier stands last
        assert found is not None
        return
    assert found == read


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"usage":', b'{"usage":{"prompt_tok', b'{"usage":null'])
def test_nothing_is_found_where_nothing_is(body: bytes) -> None:
    assert reported_in(body, "openai_chat") is None


@pytest.mark.parametrize(
    ("body", "cut"),
    [
        (CHAT[:-1], True),
        (CHAT[:20], True),
        (CHAT, False),
        (b"", False),
        (b"<html>", False),
        (b"\x00\x1f\xff", False),
        (b'{"error": {"message": "scri', False),
        (b'{"type":"error","error":{"mess', False),
        (b'{"object": "error", "mess', False),
        (b'{"detail":"no', False),
    ],
)
def test_only_the_beginning_of_an_answer_counts_as_cut(body: bytes, cut: bool) -> None:
    assert is_cut(body) is cut


def test_text_is_measured_in_characters_up_to_the_cut() -> None:
    assert characters_in(CHAT) == len('say "é"')
    assert characters_in(b'{"content":"abc') == 3
    assert characters_in(b'{"content":[{"type":"text","text":"ab"},{"type":"tool_use","arguments":"{}"') == 4
    assert characters_in(b'{"data":[{"embedding":[0.1,0.2') == 0


@steady
@given(st.integers(0, len(CHAT)))
def test_a_body_may_be_cut_anywhere(at: int) -> None:
    found = reported_in(CHAT[:at], "openai_chat")
    assert found is None or found.all_input == 9
    assert characters_in(CHAT[:at]) <= 9
