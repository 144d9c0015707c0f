"""Makes the packaged table of equal model names: `python -m training.model_names`.

The names come from litellm's price map and, for OpenRouter, from genai-prices. Both are packages of the development
environment; nothing is downloaded.

A name belongs to a model if it is equal to the model's name after its decorations are removed: the vendor's prefix, the
region, the version suffix of Bedrock, and the spelling of the date. A name without a date is used only if the sources
know one date at most for the model, because otherwise vendors may mean different snapshots. Only models that one maker
sells are in the table: servers of open models differ in quantisation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from gateway.ledger.prices import litellm_map
from gateway.ledger.prices.model_names import PACKAGED, bare

_VENDORS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "azure": "azure",
    "azure_ai": "azure",
    "bedrock": "bedrock",
    "bedrock_converse": "bedrock",
    "gemini": "gemini",
    "xai": "xai",
}
"""Provider in litellm's map → kind of backend. Providers that begin with `vertex_ai` are kind `vertex`."""
_MODES = ("chat", "responses", "embedding")
_CLOSED = re.compile(r"^(?:claude-(?!v\d|instant)|gpt-(?!oss)|o[134](?:-|$)|gemini-|grok-|text-embedding-)")
_DATE = re.compile(r"-(?:(20\d\d)-?)?([01]\d)-?([0-3]\d)$")
"""A date, or month and day in names such as gpt-4-0613."""
_SUFFIX = re.compile(r"-v\d+(?::\d+)*$")


def _plain(name: str) -> tuple[str, str]:
    """The name without decorations, and its date; empty if it has none."""
    plain = _SUFFIX.sub("", name.rsplit("/", 1)[-1].lower().replace("@", "-"))
    plain = re.sub(r"^[a-z]+\.(?=[a-z])", "", plain).replace(".", "-").removesuffix("-default")
    found = _DATE.search(plain)
    return (_DATE.sub("", plain), "".join(filter(None, found.groups()))) if found else (plain, "")


def _names() -> Iterator[tuple[str, str]]:
    """Yield (kind, name) of all models at the vendors."""
    path = litellm_map.installed()
    assert path is not None, "litellm is not installed"
    for key, facts in litellm_map.read(path).items():
        provider = str(facts.get("litellm_provider"))
        vendor = "vertex" if provider.startswith("vertex_ai") else _VENDORS.get(provider)
        if vendor and facts.get("mode") in _MODES and not key.startswith("ft:"):
            yield vendor, bare(vendor, key.rsplit("/", 1)[-1])
    from genai_prices.data import providers

    router = next(provider for provider in providers if provider.id == "openrouter")
    yield from (("openrouter", model.id) for model in router.models if ":" not in model.id)


def table() -> dict[str, dict[str, list[str]]]:
    """Model → kind of backend → names. Only models that at least two kinds of backends have."""
    sightings: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for vendor, name in _names():
        model, day = _plain(name)
        if _CLOSED.match(model) and not model.endswith("-latest"):  # the meaning of such a name changes
            sightings[model].add((day, vendor, name))
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for model, seen in sightings.items():
        days = {day for day, _, _ in seen} - {""}
        for day, vendor, name in seen:
            if len(days) <= 1:
                found[model][vendor].add(name)
            elif day:
                found[f"{model}-{day}"][vendor].add(name)
    return {
        model: {vendor: sorted(names) for vendor, names in sorted(vendors.items())}
        for model, vendors in sorted(found.items())
        if len(vendors) > 1
    }


def content() -> dict[str, Any]:
    """The content of the packaged file."""
    via = f"litellm {version('litellm')}, genai-prices {version('genai-prices')}"
    return {"as_of": datetime.now(UTC).date().isoformat(), "via": via, "models": table()}


if __name__ == "__main__":
    Path(PACKAGED).write_bytes(orjson.dumps(content(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
