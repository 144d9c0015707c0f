"""The server's sentences with fixed forms are translated for the page."""

from __future__ import annotations

import re
from datetime import UTC
from typing import get_args

import orjson
import pytest

from gateway.alerts.alert import Kind
from gateway.alerts.detect.samples import sample
from gateway.dashboard.spoken import FORMS, LANGUAGES, language_of, said, translated
from gateway.ledger.reports.explanation import sentences
from gateway.ledger.reports.why import why
from gateway.ledger.store.archive import retold
from tests.dashboard.samples import NOW, USD
from tests.ledger.test_why import BROKEN, PRICES, SECOND, WEAK, row

OWN_FORM = ("threshold", "forecast")
"""Alerts of budgets: the page says their figures in its own words."""
ENGLISH = ("report",)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", sorted(set(get_args(Kind)) - {*OWN_FORM, *ENGLISH}))
def test_every_kind_of_alert_is_translated(kind: Kind, language: str) -> None:
    text = str(sample(kind, "search", NOW).payload["text"])
    translation = translated(text, language)
    assert translation is not None, text
    assert "search" in translation


@pytest.mark.parametrize("language", LANGUAGES)
def test_reasons_and_explanations_are_translated(language: str) -> None:
    requests = [
        [row(model_asked="large")],
        [row()],
        [row(difficulty=None, traffic_class="en/long/opening", trimmed_tokens=9)],
        [row(decided="small"), row(attempt=2, kind="hedge"), row(attempt=3, kind="shadow", cost_pico=USD // 4)],
        [WEAK, SECOND],
        [BROKEN, SECOND],
        [row(input_tokens=100_000, output_tokens=2_000, prices=PRICES, cost_pico=330_000_000_000)],
        [row(attempt=0, cache="semantic")],
        [row(cached_tokens=7, estimated=True), row(attempt=2, outcome="interrupted", cost_pico=None)],
        [row(model_asked="tiny", above_ceiling=True)],
    ]
    for rows in requests:
        reasons = why(rows)
        lines = list(sentences({**retold(rows), "why": reasons}, UTC))[1:]
        found = said({"dearest": [{"why": reasons}], "sentences": lines}, language)
        assert {*reasons, *(line.strip() for line in lines)} == found.keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("91% of the cost is for 1,000 tokens of input at $0.15 per million.",
         "El 91 % del coste es por 1.000 tokens de entrada a 0,15 $ el millón."),
        ("observe mode; decided: nothing was graded: reference large",
         "modo observe; decidido: no se evaluó nada: referencia large"),
        ("held out to compare with; decided: small is the cheapest adequate one: 0.97 at difficulty 0.21",
         "apartada para comparar; decidido: small es el más barato adecuado: 0,97 con dificultad 0,21"),
        ("lacks tools", "le falta tools"),
        ("something new happened", None),
        ("lacks " + "x" * 1000, None),
    ],
)  # fmt: skip
def test_forms_are_filled_with_the_values_of_the_text(text: str, expected: str | None) -> None:
    assert translated(text, "es") == expected


def test_each_form_has_the_same_places_in_each_language() -> None:
    for form, *others in orjson.loads(FORMS.read_bytes()):
        assert len(others) == len(LANGUAGES)
        for other in others:
            assert set(re.findall(r"\{(\d)\}", other)) == set(re.findall(r"\{#?(\d)\}", form)), form


def test_the_language_is_that_of_the_header() -> None:
    assert [language_of(one) for one in ("pt-BR,en;q=0.5", "ES", "de-DE", "")] == ["pt", "es", "", ""]
