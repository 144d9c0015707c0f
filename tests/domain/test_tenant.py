from __future__ import annotations

import pytest

from gateway.domain.policy import LimitsPolicy, Policy, Priority
from gateway.domain.request import Controls
from gateway.domain.tenant import Key, Tenant


@pytest.mark.parametrize(
    ("policy", "header", "batch"),
    [("interactive", "", False), ("interactive", "batch", True), ("batch", "", True), ("batch", "batch", True)],
)
def test_a_request_may_lower_its_priority_but_not_raise_it(policy: Priority, header: str, batch: bool) -> None:
    tenant = Tenant(Key("k", "t"), Policy(team="t", limits=LimitsPolicy(priority=policy)))
    assert tenant.batch(Controls(priority=header)) is batch  # type: ignore[arg-type]
