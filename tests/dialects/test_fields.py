"""Types of the fields that the gateway acts on."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.requests.fields import Wanted, check, read_model
from gateway.errors import BadRequest

WANTED = {"n": Wanted((int,), "a whole number from 1 to 3", 1, 3), "echo": Wanted((bool,), "true or false")}


@pytest.mark.parametrize("fields", [{}, {"n": 1}, {"n": 3}, {"n": None}, {"echo": False}, {"unheard": []}])
def test_what_fits_or_is_not_known_passes(fields: dict[str, Any]) -> None:
    check(fields, WANTED)


@pytest.mark.parametrize("fields", [{"n": 0}, {"n": 4}, {"n": True}, {"n": 1.0}, {"n": "1"}, {"echo": 1}])
def test_what_does_not_fit_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=rf"^{next(iter(fields))} must be ") as caught:
        check(fields, WANTED)
    assert caught.value.param == next(iter(fields))


@pytest.mark.parametrize("fields", [{}, {"model": ""}, {"model": None}, {"model": 5}])
def test_a_model_is_required(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        read_model(fields)
    assert caught.value.param == "model"
    assert read_model({"model": "m"}) == "m"
