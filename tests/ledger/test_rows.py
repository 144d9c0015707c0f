"""What a row says of an attempt, and what an orphan is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.money.pace import BEGUN_BYTES, streamed_tokens
from gateway.domain.money.usage import Usage
from gateway.domain.tenant import Tenant
from gateway.ledger.journal.orphan import BackendPace, Mark, classes_of, orphan
from gateway.ledger.rows import FIELDS, TOKENS, Decided, Row, asked, ending, from_cache, opening
from gateway.state.sql.tables import ledger
from tests.ledger.samples import SIMULATED, USAGE, begin, finish, record


def test_a_row_has_the_tables_columns() -> None:
    assert {*Row._fields, "chain", "chain_seq", "chain_hash"} == {column.name for column in ledger.columns}


def test_beginning_and_end_make_a_whole_row() -> None:
    entry = record(session="s", tags={"b": "2", "a": "1"})
    entry.difficulty, entry.escalated = 0.25, True
    attempt = finish(begin(entry))
    row = Row(*opening(attempt, entry), *ending(attempt, entry, USAGE, ""))
    assert (row.id, row.session, row.tags, row.difficulty, row.escalated) == (
        attempt.id,
        "s",
        '{"a":"1","b":"2"}',
        0.25,
        True,
    )
    assert (row.output_tokens, row.outcome) == (20, "ok")


@pytest.mark.parametrize(
    ("facts", "last"),
    [
        ({}, "sent_bytes"),
        ({"stream": True}, "stream"),
        ({"difficulty": 0.0}, "difficulty"),
        ({"tags": {"a": "b"}}, "tags"),
    ],
)
def test_a_row_ends_with_the_last_value_that_is_not_the_default(facts: dict[str, Any], last: str) -> None:
    entry = record()
    for name, value in facts.items():
        setattr(entry, name, value)
    attempt = finish(begin(entry))
    values = opening(attempt, entry) + ending(attempt, entry, USAGE, "")
    assert FIELDS[len(values) - 1] == last
    row = Row.of(values)
    assert (row.stream, row.difficulty, row.trimmed_tokens) == (entry.stream, entry.difficulty, 0)
    assert (row.error, row.estimated, row.saved_pico, row.simulated) == ("", False, None, False)


def test_the_rarest_fact_makes_a_whole_row() -> None:
    entry = record()
    attempt = finish(begin(entry, SIMULATED))
    values = opening(attempt, entry) + ending(attempt, entry, Usage(1, audio_tokens=2, image_tokens=3), "")
    assert FIELDS[len(values) :] == [
        *("supersedes", "decided", "decided_pico", "decided_ppm"),
        *("service_tier", "unpriced", "doubt", "waited_ms", "above_ceiling", "agent", "traffic_class"),
    ]
    row = Row.of(values)
    assert (row.audio_tokens, row.image_tokens, row.simulated) == (2, 3, True)


@pytest.mark.parametrize("facts", [{"outcome": "escalated"}, {"outcome": "interrupted"}, {"error": "bad"}, {}])
@pytest.mark.parametrize("more", [{"kind": "hedge"}, {"unpriced": "web_search=1"}, {}])
@pytest.mark.parametrize(
    "usage",
    [
        USAGE,
        *[replace(USAGE, **{name: 7}) for name in TOKENS],
        *(replace(USAGE, estimated=True), replace(USAGE, service_tier="flex"), replace(USAGE, doubt="cached")),
    ],
)
def test_a_row_that_began_as_usual_has_what_only_its_end_knows(
    facts: dict[str, Any], more: dict[str, Any], usage: Usage
) -> None:
    entry = record()
    attempt = begin(entry)
    assert not asked(attempt, entry)
    finish(attempt)
    for name, value in (facts | more).items():
        setattr(attempt, name, value)
    for entry.escalated in (False, True):
        for decided in (None, Decided("large", 5, 900_000)):
            quick = ending(attempt, entry, usage, "", decided, usual=True)
            assert quick == ending(attempt, entry, usage, "", decided)


def test_who_asked_and_who_pays_stand_in_every_row_of_a_request() -> None:
    entry = record()
    entry.end_user = "eu_1"
    entry.tenant = Tenant(entry.tenant.key, entry.tenant.policy.model_copy(update={"cost_centre": "4711"}))
    attempt = begin(entry)
    attempt.kind = "hedge"
    closed = Row.of(opening(attempt, entry) + ending(finish(attempt), entry, USAGE, ""))
    hit = Row.of(from_cache(entry, USAGE, 5))
    opened = dict(zip(FIELDS, opening(attempt, entry), strict=False)) | asked(attempt, entry)
    dead = orphan(opened, {"tokens": 1}, None)
    assert {(row.end_user, row.cost_centre) for row in (closed, hit, dead)} == {("eu_1", "4711")}
    assert (closed.kind, hit.kind, dead.kind) == ("hedge", "", "hedge")


@pytest.mark.parametrize(
    ("chunks", "output_bytes", "tokens"),
    [(0, 0, 0), (10, 2000, 10), (10, 500, 10), (2, 3600, 500), (0, 800, 0), (0, 1360, 100)],
)
def test_a_token_an_event_or_more_where_events_carry_much_text(chunks: int, output_bytes: int, tokens: int) -> None:
    assert streamed_tokens(chunks, output_bytes) == tokens


def test_an_orphan_costs_what_its_beginning_knew() -> None:
    entry = record()
    attempt = begin(entry, at=1_800_000_000.0)
    opened = dict(zip(Row._fields, opening(attempt, entry), strict=False))
    line = {"tokens": 100, "prices": "input=50 output=7", "source": "test"}
    assert orphan(opened, line, None).cost_pico == 5000
    row = orphan(opened, line, Mark(attempt.started_at + 2, 10, 0))
    assert (row.prices, row.price_source) == ("input=50 output=7", "test")
    assert (row.cost_pico, row.output_tokens, row.duration_ms, row.estimated) == (5070, 10, 2000.0, True)
    assert orphan(opened, {"tokens": 100}, None).cost_pico is None


def test_an_orphan_of_an_earlier_version_costs_what_that_wrote() -> None:
    entry = record()
    attempt = begin(entry)
    opened = dict(zip(Row._fields, opening(attempt, entry), strict=False))
    row = orphan(opened, {"tokens": 100, "pico": [5000, 7], "source": "old"}, Mark(None, 10, 0))
    assert (row.cost_pico, row.price_source, row.prices) == (5070, "old", "")


def test_an_orphan_is_billed_in_the_classes_that_its_backend_had_reported() -> None:
    entry = record()
    attempt = begin(entry)
    opened = dict(zip(Row._fields, opening(attempt, entry), strict=False))
    line = {"tokens": 100, "prices": "input=50 output=7 cached_input=5", "source": "test"}
    reported = classes_of(Usage(20, 900, output_tokens=1))
    row = orphan(opened, line, Mark(None, 10, 0), reported)
    assert (row.input_tokens, row.cached_tokens, row.output_tokens) == (20, 900, 10)
    assert (row.cost_pico, row.estimated) == (20 * 50 + 900 * 5 + 10 * 7, True)


@pytest.mark.parametrize("usage", [Usage(), Usage(output_tokens=5), Usage(2**40)])
def test_what_counts_no_input_or_cannot_be_is_not_marked(usage: Usage) -> None:
    assert classes_of(usage) == {}


KNOWN = BackendPace(plain=40.0, hidden=100.0, frame_bytes=200.0, most=None)


@pytest.mark.parametrize(
    ("known", "spoke_s", "tokens"),
    [
        (KNOWN, None, 250),
        (KNOWN._replace(most=200), None, 200),
        (KNOWN, 1.5, 150),
        (KNOWN._replace(hidden=0.0), 1.5, 0),
        (None, None, 0),
    ],
)
def test_an_orphan_that_reasoned_unseen_is_billed_at_its_backends_pace_until_its_text_began(
    known: BackendPace | None, spoke_s: float | None, tokens: int
) -> None:
    entry = record(stream=True)
    attempt = begin(entry, SIMULATED)
    opened = dict(zip(FIELDS, opening(attempt, entry), strict=False)) | asked(attempt, entry)
    mark = None if spoke_s is None else Mark(None, 1, 240, opened["at"] + spoke_s)
    row = orphan(opened, {"tokens": 10}, mark, None, known, opened["at"] + 2.5)
    assert (row.input_tokens, row.output_tokens, row.reasoning_tokens) == (10, 0 if mark is None else 1, tokens)


@pytest.mark.parametrize(("line", "tokens"), [({"tokens": 10}, 100), ({"tokens": 10, "cap": 30}, 30)])
def test_an_orphan_of_a_plain_answer_is_billed_for_what_was_generated_of_it(line: Any, tokens: int) -> None:
    entry = record()
    opened = dict(zip(FIELDS, opening(begin(entry, SIMULATED), entry), strict=False))
    row = orphan(opened, line, None, None, KNOWN, opened["at"] + 2.5)
    assert (row.input_tokens, row.output_tokens, row.reasoning_tokens) == (10, tokens, 0)


def test_an_orphans_text_and_what_came_unseen_before_it_are_no_more_together_than_it_could_have() -> None:
    entry = record(stream=True)
    attempt = begin(entry, SIMULATED)
    opened = dict(zip(FIELDS, opening(attempt, entry), strict=False)) | asked(attempt, entry)
    mark = Mark(None, 20, 21 * 200 + 20 * 4, opened["at"] + 1.5)
    row = orphan(opened, {"tokens": 10, "cap": 50}, mark, None, KNOWN, opened["at"] + 2.5)
    assert (row.output_tokens, row.reasoning_tokens) == (20, 30)


def test_an_orphans_text_is_told_from_its_wire_format_by_what_its_backend_sends_beside_text() -> None:
    entry = record(stream=True)
    attempt = begin(entry, SIMULATED)
    opened = dict(zip(FIELDS, opening(attempt, entry), strict=False)) | asked(attempt, entry)
    mark = Mark(None, 10, BEGUN_BYTES + 11 * 200 + 10 * 20 * 4)
    assert orphan(opened, {"tokens": 10}, mark, None, KNOWN).output_tokens == 200
    assert orphan(opened, {"tokens": 10}, mark, None, None).output_tokens < 200
