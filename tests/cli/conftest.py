"""What all tests of commands share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How far commands have lowered the priority of their process. Here that is the process of all other tests, so it
    is not done."""
    steps: list[int] = []
    monkeypatch.setattr(os, "nice", steps.append)
    return steps
