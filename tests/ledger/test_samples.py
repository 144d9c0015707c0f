"""Samples that a team keeps for learning: read by the team alone, and gone when they expire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.ledger.store import samples
from gateway.ledger.store.samples import KeptSample
from gateway.state.sql.database import Database

ASKED = {"messages": [{"role": "user", "content": "What is 7 plus 1?"}]}
ANSWERS = [
    {"backend": name, "choices": [{"message": {"role": "assistant", "content": text}}], "finish": "stop"}
    for name, text in (("large", "8"), ("small", "9"))
]
SAMPLE = KeptSample("r1", "en/text/opening", ASKED, ANSWERS, "agreement", 0.0)


def test_a_sample_is_read_as_it_was_kept_by_its_team_until_it_expires(any_database: Database) -> None:
    with any_database.begin() as connection:
        samples.keep(connection, "search", replace(SAMPLE, score=1.0), 1.0, 5.0)
        samples.keep(connection, "search", SAMPLE, 2.0, 10.0)
        assert list(samples.read(connection, "search", 9.0)) == [SAMPLE]
        assert list(samples.read(connection, "search", 10.0)) == []
        assert list(samples.read(connection, "chat", 9.0)) == []


def test_expired_samples_are_deleted_and_a_team_can_forget_its_own(any_database: Database) -> None:
    with any_database.begin() as connection:
        for team, ends in (("search", 5.0), ("search", 10.0), ("chat", 10.0)):
            samples.keep(connection, team, replace(SAMPLE, request_id=f"{ends}"), 1.0, ends)
        assert samples.tidy(connection, 5.0) == 1
        assert samples.forget(connection, "search") == 1
        assert len(list(samples.read(connection, "chat", 5.0))) == 1


def test_the_oldest_samples_of_a_team_that_keeps_too_much_are_deleted(
    any_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with any_database.begin() as connection:
        for number in range(4):
            samples.keep(connection, "search", replace(SAMPLE, request_id=f"r{number}"), float(number), 100.0)
        size = samples.held(connection, "search") // 4
        monkeypatch.setattr(samples, "TEAM_BYTES", 2 * size)
        assert samples.tidy(connection, 50.0) == 2
        assert [one.request_id for one in samples.read(connection, "search", 50.0)] == ["r2", "r3"]
