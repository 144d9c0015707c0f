"""Stores the states of plans on trial. At first, the decisions of a plan are only recorded. If the plan is better
than the live plan, it becomes the live plan. If it then turns out to be worse, the previous plan is used again.

States of a plan:

- `shadow`: its decisions are only recorded;
- `live`: it is used instead of the configured plan;
- `previous`: it was live before, and its decisions are still recorded;
- `refused`: it was not better;
- `retired`: it was replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, insert, select, update

from gateway.learning.plans.verdict import MOST, Comparison, Outcome, compare, on_trial, to_roll_back
from gateway.state.sql.tables import artefacts, evidence

CONFIGURED = "configured"
"""Used in place of a plan's id. It stands for the plan that `routing.plan_file` names or, without such a plan, for
decisions by the grader."""
_ID = 16
"""Number of characters of a plan's id that are stored with each judged request."""


@dataclass(frozen=True, slots=True)
class PlanFile:
    id: str
    state: str
    at: float
    why: str


def known(connection: Connection) -> list[PlanFile]:
    """All plans, beginning with the plan whose state changed last."""
    c = artefacts.c
    return [PlanFile(*row) for row in connection.execute(select(c.id, c.state, c.at, c.why).order_by(c.at.desc()))]


def body(connection: Connection, id: str) -> bytes:
    """The content of the plan file with this id. Raises NoResultFound."""
    return bytes(connection.execute(select(artefacts.c.body).where(artefacts.c.id == id)).scalar_one())


def stage(connection: Connection, data: bytes, now: float) -> str:
    """Put the plan in `data` on trial. A plan that was on trial before is retired. Returns the id of the plan. If this
    plan is already live or on trial, its state does not change."""
    id = hashlib.sha256(data).hexdigest()
    c = artefacts.c
    state = connection.scalar(select(c.state).where(c.id == id))
    if state in ("live", "shadow"):
        return id
    _move(connection, "shadow", "retired", now, "another plan was put on trial")
    if state is None:
        connection.execute(insert(artefacts).values(id=id, body=data, state="shadow", at=now, why="put on trial"))
    else:
        connection.execute(update(artefacts).where(c.id == id).values(state="shadow", at=now, why="put on trial again"))
    return id


def roll_back(connection: Connection, now: float, why: str) -> bool:
    """Stop using the live plan, and use the previous plan again. Returns False if no plan is live; then the
    configured plan is used.
    """
    if not _move(connection, "live", "retired", now, why):
        return False
    _move(connection, "previous", "live", now, f"rolled back to: {why}")
    return True


def promote(connection: Connection, id: str, now: float, why: str) -> bool:
    """Begin to use the plan `id`, which was on trial. Returns False if another process has changed the plan's state."""
    c = artefacts.c
    if connection.scalar(select(c.state).where(c.id == id).with_for_update()) != "shadow":
        return False
    _move(connection, "previous", "retired", now, "replaced")
    _move(connection, "live", "previous", now, why)
    connection.execute(update(artefacts).where(c.id == id).values(state="live", at=now, why=why[:300]))
    return True


def refuse(connection: Connection, id: str, now: float, why: str) -> None:
    c = artefacts.c
    connection.execute(
        update(artefacts).where(c.id == id, c.state == "shadow").values(state="refused", at=now, why=why[:300])
    )


def _move(connection: Connection, before: str, after: str, now: float, why: str) -> int:
    return connection.execute(
        update(artefacts).where(artefacts.c.state == before).values(state=after, at=now, why=why[:300])
    ).rowcount


def written(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The outcomes of a judged request as JSON values: shortened id of the plan → outcome."""
    return {id[:_ID]: [one.quality, one.cost_pico] for id, one in outcomes.items()}


def compared(connection: Connection, tried: str, live: str, since: float) -> tuple[Comparison, float]:
    """Compare two plans on the requests that were judged since `since`. `tried`, `live`: the ids of the plans. Returns
    the comparison, and the mean quality that routing promised for these requests (1 if there are none)."""
    c = evidence.c
    rows = connection.execute(
        select(c.plans, c.target).where(c.at >= since, c.plans != "{}").order_by(c.id.desc()).limit(MOST)
    )
    pairs, targets = [], []
    for plans, target in rows:
        outcomes = orjson.loads(plans)
        if tried[:_ID] in outcomes and live[:_ID] in outcomes:
            pairs.append((Outcome(*outcomes[tried[:_ID]]), Outcome(*outcomes[live[:_ID]])))
            targets.append(target)
    return compare(pairs), sum(targets) / len(targets) if targets else 1.0


def decide(connection: Connection, now: float) -> str:
    """Change the state of a plan if a change is due: begin to use the plan on trial, refuse the plan on trial, or
    return from the live plan to the previous one. Returns a description of the change; empty if nothing changed."""
    states = {one.state: one for one in known(connection)}
    live, shadow, previous = (states.get(state) for state in ("live", "shadow", "previous"))
    if live is not None:
        before, target = compared(connection, previous.id if previous else CONFIGURED, live.id, live.at)
        if to_roll_back(before, target):
            why = f"measured worse than before, or than promised, over {before.pairs} requests"
            return f"rolled back: {why}" if roll_back(connection, now, why) else ""
    if shadow is None:
        return ""
    found, _ = compared(connection, shadow.id, live.id if live else CONFIGURED, shadow.at)
    if not (verdict := on_trial(found)):
        return ""
    why = (
        f"{verdict} over {found.pairs} requests: quality {found.quality[0]:+.3f} to {found.quality[1]:+.3f}, USD per "
        f"1,000 requests {found.cost_pico[0] / 1e9:+.4f} to {found.cost_pico[1] / 1e9:+.4f} (99 % bounds each)"
    )
    if verdict == "refused":
        refuse(connection, shadow.id, now, why)
        return f"refused: {why}"
    return f"switched: {why}" if promote(connection, shadow.id, now, why) else ""
