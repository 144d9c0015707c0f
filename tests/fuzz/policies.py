"""Policy files: a valid one, changed as a value or as text."""

from __future__ import annotations

from random import Random

import orjson
import yaml

from tests.fuzz.mutate import as_json, spoilt
from tests.fuzz.seeds import POLICY


def policy(random: Random) -> bytes:
    """A policy file that may be wrong in any way."""
    text = as_json(random, POLICY)  # YAML takes JSON
    if random.random() < 0.5:
        text = _block_style(text)
    return spoilt(random, text) if random.random() < 0.2 else text


def _block_style(text: bytes) -> bytes:
    try:
        return yaml.safe_dump(orjson.loads(text), allow_unicode=True).encode()
    except (ValueError, yaml.YAMLError):
        return text
