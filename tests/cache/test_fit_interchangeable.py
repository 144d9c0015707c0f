from __future__ import annotations

from pathlib import Path

import orjson

from gateway.cache.verifier.lexicon import INTERCHANGEABLE, load_words
from training.interchangeable import Exchange, Finder, lists, mined, with_lists
from training.verifier import TRUTH

LISTED = orjson.loads(INTERCHANGEABLE.read_bytes())


def test_two_words_count_if_two_clusters_show_them_and_few_pairs_contradict() -> None:
    def shown(words: tuple[str, str], same: int, other: int) -> list[Exchange]:
        return [Exchange("en", words, f"{number}", number < same) for number in range(same + other)]

    found = lists([*shown(("film", "movie"), 2, 0), *shown(("car", "train"), 1, 0), *shown(("big", "old"), 2, 1)])
    assert found == {"en": ["film movie"], "es": [], "pt": []}


def test_only_one_common_word_on_each_side_in_one_place_is_an_exchange() -> None:
    finder = Finder()

    def words(left: str, right: str) -> list[tuple[str, str]]:
        return [each.words for each in finder.exchanges([(left, right, "c")], same=True)]

    assert words("What film did she direct?", "What movie did she direct?") == [("film", "movie")]
    assert not words("What film did she direct?", "What movie did he refuse?")
    assert not words("How do I turn the lamp on?", "How do I turn the lamp off?")
    assert not words("Can she sing?", "Can nobody sing?")


def test_lists_are_made_of_texts_outside_the_half_that_judges_them(tmp_path: Path) -> None:
    rows = [
        {"cluster": f"{number}", "source": "pira", "text": f"What {word} did the {thing} lady direct?"}
        for number, thing in enumerate(("old", "rich", "tall", "young", "poor", "small", "nice", "sad"))
        for word in ("film", "movie")
    ]
    (tmp_path / "texts.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    for source in TRUTH:
        (tmp_path / f"{source}_pairs.jsonl").touch()
    edit = {"a": "What film did she direct?", "b": "What movie did she direct?", "label": 0}
    (tmp_path / "own_edits.jsonl").write_bytes(orjson.dumps(edit))
    assert mined(tmp_path)["en"] == ["film movie"]
    halves = [mined(tmp_path, without=half)["en"] for half in (0, 1)]
    assert halves == [["film movie"], ["film movie"]]
    lexicons = with_lists({"en": ["car truck"], "es": [], "pt": []}).lexicons
    assert lexicons["en"].interchangeable == {("car", "truck")}
    assert not lexicons["es"].interchangeable


def test_the_packaged_pairs_are_in_order_and_no_opposites() -> None:
    for language, lexicon in load_words().lexicons.items():
        pairs = [pair.split() for pair in LISTED[language]]
        assert all(one < other for one, other in pairs)
        assert not any(other in lexicon.opposites.get(one, ()) for one, other in pairs)
    assert "film movie" in LISTED["en"]
