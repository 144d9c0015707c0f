from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.cache.quality.curve import curve


def test_a_higher_threshold_lets_less_through() -> None:
    points = curve([0.9, 0.6, 0.4, 0.95], [1, 1, 0, 0], steps=10)
    at = {round(point.threshold, 1): point for point in points}
    assert (at[0.3].right, at[0.3].wrong, at[0.3].wrong_of_all) == (1.0, 1.0, 0.5)
    assert (at[0.7].right, at[0.7].wrong, at[0.7].wrong_of_all) == (0.5, 0.5, 0.25)
    assert all(later.right <= sooner.right for sooner, later in pairwise(points))


def test_without_pairs_or_with_labels_missing_there_is_no_curve() -> None:
    for scores, labels in (([], []), ([0.5], [])):
        with pytest.raises(ValueError, match="one label"):
            curve(scores, labels)
