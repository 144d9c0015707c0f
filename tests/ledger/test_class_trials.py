"""The trials of traffic classes in SQL: each comparison counts once, whoever stores it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from gateway.domain.routing.class_trial import Comparison, TrialKey
from gateway.ledger.store import class_trials
from gateway.state.sql.database import Database

KEY = TrialKey("search", "es/tools/opening", "small", "large", 0.97)


def test_comparisons_that_several_processes_store_at_once_all_count(any_database: Database) -> None:
    def store(_: int) -> None:
        with any_database.begin() as connection:
            class_trials.see(connection, KEY, Comparison(1.0, served=False), 5.0)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(store, range(40)))
    with any_database.read() as connection:
        (trial,) = class_trials.read(connection).values()
        assert (trial.compared, trial.version, trial.total) == (40, 40, 40.0)
        assert class_trials.read(connection, since=5.0) == {KEY: trial}
        assert class_trials.read(connection, since=5.1) == {}


def test_trials_of_other_teams_qualities_and_backends_are_apart(any_database: Database) -> None:
    others = (KEY._replace(team="chat"), KEY._replace(target=0.95), KEY._replace(backend="middle"))
    with any_database.begin() as connection:
        for key in (KEY, *others):
            class_trials.see(connection, key, Comparison(float(key is KEY), served=False), 5.0)
        found = class_trials.read(connection)
    assert found.keys() == {KEY, *others}
    assert [found[key].total for key in (KEY, *others)] == [1.0, 0.0, 0.0, 0.0]
