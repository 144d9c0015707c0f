from __future__ import annotations

from gateway.cache.text import plain
from gateway.cache.words import LANGUAGES, load_words


def test_all_words_are_as_texts_are_read_lower_case_and_without_accents() -> None:
    words = load_words()
    for name in LANGUAGES:
        lexicon = words.lexicons[name]
        for group in (lexicon.stopwords, lexicon.negations, lexicon.function, lexicon.courtesy, lexicon.temporal):
            assert all(word == plain(word.lower()) for word in group)
        assert all(word == plain(word.lower()) for word in lexicon.questions)
    assert all(word == plain(word.lower()) for word in words.closed | words.opposites.keys() | words.synonyms.keys())


def test_opposites_are_so_both_ways_and_no_word_is_its_own() -> None:
    opposites = load_words().opposites
    assert all(word in opposites[other] for word, others in opposites.items() for other in others)
    assert not [word for word, others in opposites.items() if word in others]


def test_a_negation_is_never_taken_for_politeness() -> None:
    for lexicon in load_words().lexicons.values():
        assert not lexicon.negations & (lexicon.courtesy | lexicon.function | lexicon.modals)
