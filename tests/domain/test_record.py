"""Request ids."""

from __future__ import annotations

import re
import time

from gateway.domain.record import RequestIds, new_request_id


def test_ids_sort_by_time_and_no_two_are_equal() -> None:
    ids = RequestIds()
    found = [ids.new() for _ in range(2000)]
    assert all(re.fullmatch(r"req_[0-9a-f]{32}", id) for id in (*found, new_request_id()))
    assert len({id[-20:] for id in found}) == 2000
    later = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < later:
        pass
    assert ids.new() > max(found)
