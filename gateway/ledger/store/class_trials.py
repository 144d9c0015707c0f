"""Stores the trials of traffic classes in SQL. All workers and hosts with the same database share them."""

from __future__ import annotations

import orjson
from sqlalchemy import Connection, select, text, update

from gateway.domain.routing.class_trial import Change, ClassTrial, Comparison, TrialKey
from gateway.state.sql.tables import class_trials

_KEY = tuple(class_trials.c[name] for name in TrialKey._fields)


def read(connection: Connection, since: float = 0.0) -> dict[TrialKey, ClassTrial]:
    """The trials that changed at `since` (Unix seconds) or later."""
    c = class_trials.c
    rows = connection.execute(select(*_KEY, c.state).where(c.at >= since))
    return {TrialKey(*row[:-1]): ClassTrial.of(orjson.loads(row[-1])) for row in rows}


def see(connection: Connection, key: TrialKey, seen: Comparison, now: float) -> tuple[ClassTrial, Change]:
    """Add a comparison to its trial. Returns the trial and the change of its state. Several processes may call this at
    the same time."""
    fresh = ClassTrial(key.target)
    connection.execute(
        text(
            "INSERT INTO class_trials (team, traffic_class, backend, reference, target, at, stage, state) VALUES "
            "(:team, :traffic_class, :backend, :reference, :target, :at, 0, :state) "
            "ON CONFLICT (team, traffic_class, backend, reference, target) DO NOTHING"
        ),
        {**key._asdict(), "at": now, "state": orjson.dumps(fresh.values()).decode()},
    )
    row = [column == value for column, value in zip(_KEY, key, strict=True)]
    stored = connection.execute(select(class_trials.c.state).where(*row).with_for_update()).scalar_one()
    trial = ClassTrial.of(orjson.loads(stored))
    change = trial.see(seen)
    connection.execute(
        update(class_trials).where(*row).values(at=now, stage=trial.stage, state=orjson.dumps(trial.values()).decode())
    )
    return trial, change
