"""Computes the expected cost and quality of a decision that is not applied. This happens in observe mode, outside the
rollout, and for requests that the reference answers for comparison (the hold-out)."""

from __future__ import annotations

from gateway.domain.backend import Backend
from gateway.domain.routing.route import Decision
from gateway.routing.decision import Choice
from gateway.routing.strategy.planned import Planned


def promise(choice: Choice, plan: Planned | None, stronger: Backend | None) -> Decision:
    """The expected calls and adequacy (probability of an answer as good as the reference's), if the decision were
    applied. `plan`: the plan's decision, or None. `stronger`: the backend that is called after unsure answers; the
    share of unsure answers is assumed to be 1 − adequacy."""
    first = choice.order[0]
    expected = choice.adequacies.get(first.backend.name)
    adequacy = 1.0 if expected is None or first is choice.reference else expected
    if plan is not None:
        return Decision(((first.backend, plan.calls),), plan.adequacy)
    if stronger is None:
        return Decision(((first.backend, 1.0),), adequacy)
    return Decision(((first.backend, 1.0), (stronger, 1 - adequacy)), adequacy)
