"""Earlier names of `tests.fakes.gateway` and `tests.support.requests`, for the folders that still use them."""

from __future__ import annotations

from tests.fakes.gateway import INPUT as INPUT
from tests.fakes.gateway import OUTPUT as OUTPUT
from tests.fakes.gateway import InProcessGateway as House
from tests.fakes.gateway import backend as backend
from tests.fakes.gateway import open_gateway as opened_house
from tests.fakes.gateway import record_of as record_of
from tests.fakes.gateway import tenant as tenant
from tests.support.requests import small_request as ask
from tests.support.waiting import until as until

__all__ = ["INPUT", "OUTPUT", "House", "ask", "backend", "opened_house", "record_of", "tenant", "until"]
