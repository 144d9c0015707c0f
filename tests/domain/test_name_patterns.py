"""Patterns of model names in policies."""

from __future__ import annotations

import re
from itertools import product

from gateway.domain.policy import fits


def test_a_pattern_fits_as_the_regular_expression_of_its_parts_does() -> None:
    names = ["".join(letters) for length in range(6) for letters in product("ab", repeat=length)]
    patterns = ["".join(letters) for length in range(1, 6) for letters in product("ab*", repeat=length)]
    for pattern in patterns:
        form = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        assert [fits(pattern, name) for name in names] == [bool(form.fullmatch(name)) for name in names], pattern


def test_a_pattern_of_many_stars_takes_no_time_that_grows_with_each_star() -> None:
    """A regular expression would try some 10**29 ways here, in the event loop that all teams share."""
    assert not fits("*a" * 100 + "b", "a" * 200)
    assert fits("*a" * 100 + "*", "a" * 200)
