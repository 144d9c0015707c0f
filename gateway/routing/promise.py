"""The expected cost and quality of a decision that is not applied (observe mode, outside the rollout, hold-out)."""

from __future__ import annotations

from gateway.domain.backend import Backend
from gateway.domain.routing.route import Decision
from gateway.routing.decision import Choice
from gateway.routing.strategy.planned import Planned


def promise(choice: Choice, plan: Planned | None, stronger: Backend | None) -> Decision:
    """The calls that the decision would have made, and its expected adequacy.

    `stronger`: the backend that answers if the chosen one is unsure. How often that happens is unknown, so the
    probability that the chosen one is inadequate is used.
    """
    first = choice.order[0]
    expected = choice.adequacies.get(first.backend.name)
    adequacy = 1.0 if expected is None or first is choice.reference else expected
    if plan is not None:
        return Decision(((first.backend, plan.calls),), plan.adequacy)
    if stronger is None:
        return Decision(((first.backend, 1.0),), adequacy)
    return Decision(((first.backend, 1.0), (stronger, 1 - adequacy)), adequacy)
