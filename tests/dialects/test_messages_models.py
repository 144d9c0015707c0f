"""What models' names tell."""

from __future__ import annotations

import pytest

from gateway.dialects.anthropic_messages.models import UNKNOWN, abilities


@pytest.mark.parametrize(
    ("name", "adaptive", "budget", "sampling", "both", "output"),
    [
        ("claude-3-haiku-20240307", False, False, True, True, 4096),
        ("claude-3-7-sonnet-latest", False, True, True, True, 4096),
        ("claude-opus-4-20250514", False, True, True, True, 4096),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", False, True, True, False, 4096),
        ("anthropic/claude-sonnet-4.5", False, True, True, False, 32_000),
        ("claude-haiku-4-5@20251001", False, True, True, False, 32_000),
        ("Claude-Opus-4-6", True, False, True, False, 32_000),
        ("claude-opus-4-7", True, False, False, False, 32_000),
        ("claude-fable-5-1", True, False, False, False, 32_000),
        ("claude-opus-12", True, False, False, False, 32_000),
    ],
)
def test_a_generation_is_read_from_the_name(
    name: str, adaptive: bool, budget: bool, sampling: bool, both: bool, output: int
) -> None:
    can = abilities(name)
    assert (can.adaptive, can.budget, can.sampling, can.both, can.usual_output) == (
        adaptive, budget, sampling, both, output,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["claude", "scripted-claude", "smollm2", "claude-mythos-preview", "my-sonnet-4"])
def test_of_other_names_nothing_is_assumed(name: str) -> None:
    assert abilities(name) is UNKNOWN
