"""The Spanish and Portuguese pages keep step with the English ones: the same sections, commands, programs and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, ROOT, fences, without_code

LANGUAGES = ("es", "pt")
TRANSLATED = [page for page in DOCS if page.relative_to(ROOT / "docs").parts[0] in LANGUAGES]


def original(page: Path) -> Path:
    inner = Path(*page.relative_to(ROOT / "docs").parts[1:])
    return ROOT / inner if inner.name == "README.md" else ROOT / "docs" / inner


def test_both_languages_have_the_same_pages() -> None:
    found = {
        each: {page.relative_to(ROOT / "docs" / each) for page in TRANSLATED if each in page.parts}
        for each in LANGUAGES
    }
    assert found["es"] == found["pt"]
    assert len(found["es"]) >= 6


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_translation_has_the_sections_and_the_code_of_the_original(page: Path) -> None:
    def heads(text: Path) -> list[int]:
        return [len(each) for each in re.findall(r"^(#+) ", without_code(text), re.MULTILINE)]

    assert heads(page) == heads(original(page))
    for language in ("console", "python", "toml", "json", "yaml", "text", "sh"):
        assert code(page, language) == code(original(page), language)


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_translation_has_the_list_items_and_table_rows_of_the_original(page: Path) -> None:
    """Section by section; but for the README's last one, which lists other pages."""
    last = -1 if page.name == "README.md" else None
    assert parts(page)[:last] == parts(original(page))[:last]


def parts(page: Path) -> list[tuple[int, int]]:
    """List items and table rows of each section."""
    sections = re.split(r"^#+ .+$", without_code(page), flags=re.MULTILINE)
    return [
        (len(re.findall(r"^(?:- |\d+\. )", each, re.MULTILINE)), len(re.findall(r"^\|", each, re.MULTILINE)))
        for each in sections
    ]


def code(page: Path, language: str) -> list[str]:
    """Without comments."""
    return [re.sub(r" +# .*", "", fence.text) for fence in fences(page, language)]
