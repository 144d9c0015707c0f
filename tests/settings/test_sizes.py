"""Sizes in bytes, with a unit or without."""

from __future__ import annotations

import pytest

from gateway.settings.files import ConfigError, parse
from gateway.settings.gateway import GatewayConfig


@pytest.mark.parametrize(
    ("size", "told"), [("20MiB", 20 * 2**20), ("1.5GB", 1_500_000_000), ("4096", 4096), ("7 KiB", 7168), ("'9'", 9)]
)
def test_sizes_have_units(size: str, told: int) -> None:
    assert parse(f"requests: {{max_body_bytes: {size}}}\n", GatewayConfig, "f").requests.max_body_bytes == told


@pytest.mark.parametrize("size", ["20 Mib", "-1", "'1e9'", "MiB", '""', "0B", f"'{'9' * 30}'", "[1]"])
def test_what_is_no_size_is_a_mistake(size: str) -> None:
    with pytest.raises(ConfigError, match=r"f:1: requests\.max_body_bytes: "):
        parse(f"requests: {{max_body_bytes: {size}}}\n", GatewayConfig, "f")
