"""When stored answers stop counting: a name that leads to another model must not answer with its predecessor's."""

from __future__ import annotations

import pytest

from gateway.domain.backend import Backend
from gateway.wiring import fingerprint

AZURE = {"name": "gpt", "kind": "azure", "model": "gpt-4o", "base_url": "https://acme.openai.azure.com", "api_key": "k"}


@pytest.mark.parametrize(
    "change",
    [
        {"deployment": "other"},
        {"base_url": "https://beta.openai.azure.com"},
        {"name": "gpt-2"},
        {"model": "gpt-5", "deployment": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_model_behind_a_name_changes_the_fingerprint(change: dict[str, str | None]) -> None:
    before = {**AZURE, "deployment": "first"}
    assert fingerprint([_backend(before)]) != fingerprint([_backend({**before, **change})])


def test_an_unchanged_file_keeps_its_cache_over_releases() -> None:
    """The digest is written out: an upgrade that changed it would empty every cache."""
    backend = {"name": "b", "kind": "openai", "model": "m", "base_url": "http://10.0.0.5:8000/v1"}
    assert fingerprint([_backend(backend)]) == "8aedc9fcfa86a4ae"


def _backend(fields: dict[str, str | None]) -> Backend:
    return Backend.model_validate({key: value for key, value in fields.items() if value is not None})
