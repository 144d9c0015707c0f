from __future__ import annotations

import pytest

from gateway.cache.verifier.differences import Comparer, Comparison
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.text import Reader

WORDS = load_words()
READER, COMPARER = Reader(WORDS), Comparer(WORDS)


def compare(stored: str, asked: str) -> Comparison:
    return COMPARER.compare(READER.read(stored), READER.read(asked))


@pytest.mark.parametrize(
    ("stored", "asked", "conflict"),
    [
        ("Send 50 euros to the bank", "Send 60 euros to the bank", "numbers"),
        ("How do I use numpy2?", "How do I use numpy3?", "symbols"),
        ("Is it hot in Rome?", "Is it hot in Oslo?", "names"),
        ("What does 'pan' mean?", "What does 'pen' mean?", "quoted"),
        ("Do birds sleep?", "Do birds never sleep?", "negation"),
        ("How do birds sleep?", "Where do birds sleep?", "question"),
        ("Is it hot there?", "Was it hot there?", "tense"),
        ("Do cats eat mice?", "Do mice eat cats?", "order"),
        ("Find a train from Rome to Oslo", "Find a train from Oslo to Rome", "order"),
        ("What comes after June in that list?", "What comes in that June after list?", "order"),
        ("Where was the first well drilled by that company?", "When did that company drill a first well?", "questions"),
        ("is the kitchen lamp on", "kitchen lamp on please", "question"),
        ("turn off the light in the hall", "turn the light in the hall on", "opposite"),
        ("¿Cómo abro la puerta? Quiero abrir", "Quiero cerrar, ¿cómo va la puerta?", "opposite"),
        ("Is tea healthy?", "Is tea healthy? Make a drawing.", "sentence"),
        ("Fix this:\na b", "Fix this:\na c", "payload"),
        ("Where is the house?", "¿Dónde está la casa?", "language"),
        ("A palavra avó é bonita?", "A palavra avô é bonita?", "accent"),
        ("Hi there", "Thank you", "courtesy"),
        ("a " * 10 + "b " * 70, "a " * 10 + "c " * 70, "length"),
    ],
)
def test_a_conflict_is_found_and_named(stored: str, asked: str, conflict: str) -> None:
    assert compare(stored, asked).conflict == conflict


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("How do developers work?", "How do develpers work?"),
        ("How do developers work?", "How do developerss work?"),
        ("Where are the cars?", "Where are the car?"),
        ("¿Cómo cancelo la suscripción?", "¿Cómo cancelo la suscripcion?"),
        ("¿Cómo cancelo la suscripción?", "¿Cómo cancelo la susrcipción?"),
    ],
)
def test_a_slip_of_the_pen_is_harmless(stored: str, asked: str) -> None:
    assert compare(stored, asked).same


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("How do trains work?", "How do trails work?"),
        ("Is it a form of art?", "Is it a farm of art?"),
        ("¿Dónde vive el perro?", "¿Dónde vive el pero?"),
        ("¿Cómo hago un plan?", "¿Cómo hago un pan?"),
    ],
)
def test_another_word_is_no_slip(stored: str, asked: str) -> None:
    found = compare(stored, asked)
    assert not found.same
    assert found.exchanged


def test_spots_tell_where_content_differs() -> None:
    found = compare("What is a good way to learn French cooking?", "What is a great method to learn French cooking?")
    assert found.spots == ((2, 2),)
    assert compare("How long is a mile on the map?", "How long is a yard on the map?").exchanged


@pytest.mark.parametrize("word", ["not", "never", "nothing", "nobody"])
def test_a_negation_at_either_end_is_no_politeness(word: str) -> None:
    assert not compare("Should I buy the blue car?", f"Should I buy the blue car {word}?").same
    assert not compare("Should I buy the blue car?", f"{word}: should I buy the blue car?").same


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("What is the way from Rome to Oslo?", "How does one get to Oslo from Rome?"),
        ("What is the difference between tea and coffee?", "How do coffee and tea differ: the difference?"),
        ("For that course, who were the teachers?", "Who teaches for that course?"),
    ],
)
def test_a_word_that_moves_with_its_preposition_keeps_its_role(stored: str, asked: str) -> None:
    assert "roles" not in compare(stored, asked).signs


def test_three_words_may_exchange_their_prepositions_in_a_circle() -> None:
    stored = "Read the call from bosses to clients about cars"
    assert "roles" in compare(stored, "Play the call to bosses about clients from cars").signs


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("For that course, who were the teachers last year?", "Who were the teachers for that course last year?"),
        ("Find a train from Rome to Oslo", "Find a train to Oslo from Rome"),
        ("In the next term, what is the workload?", "What is the workload in the next term?"),
        ("¿En Madrid cómo renuevo el pasaporte?", "¿Cómo renuevo el pasaporte en Madrid?"),
    ],
)
def test_a_phrase_may_stand_elsewhere_with_its_preposition(stored: str, asked: str) -> None:
    assert "order" not in compare(stored, asked).signs
    assert not compare(stored, asked).conflict


def test_words_that_mean_the_same_in_questions_are_no_exchange() -> None:
    assert not compare("What film did she direct?", "What movie did she direct?").exchanged
    assert compare("What film did she direct?", "What play did she direct?").exchanged
    assert not compare("What film did she direct?", "What movie did he refuse?").interchangeable


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("What is the gender of Ann Lee?", "What is Ann Lee's gender?"),
        ("Who was the painter influenced by?", "By whom was the painter influenced?"),
        ("What is the storage capacity of the vessel?", "What is the vessel's storage capacity?"),
        ("Where the station is?", "Where is the station?"),
        ("The main aim of the tools is what?", "What is the main aim of the tools?"),
        ("Many thanks in advance, who wrote it?", "Who wrote it? Many thanks in advance"),
        ("For that course, who were the teachers last year?", "Last year, who were the teachers for that course?"),
    ],
)
def test_a_sentence_that_is_built_in_another_way_has_no_other_order(stored: str, asked: str) -> None:
    assert compare(stored, asked).conflict != "order"
    assert "order" not in compare(stored, asked).signs


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("Does smoking cause cancer?", "Does cancer of the lung cause smoking?"),
        ("What did Tom sell Ann?", "What did Ann sell to Tom?"),
        ("My dog bites his cat", "His cat bites my dog"),
        ("What is the capital of the state?", "What is the state of the capital?"),
        ("How do I get from coffee to tea?", "How do I get from tea to coffee?"),
        ("¿Cómo paso de café a té?", "¿Cómo paso de té a café?"),
    ],
)
def test_two_words_that_change_places_are_another_order(stored: str, asked: str) -> None:
    found = compare(stored, asked)
    assert found.conflict == "order" or found.signs & {"order", "roles"}


def test_kind_of_gives_its_noun_no_other_role() -> None:
    stored, asked = "What is the economy of China?", "What kind of economy does China have?"
    assert "roles" not in compare(stored, asked).signs


def test_more_than_two_words_replaced_are_no_exchange_but_in_a_later_sentence() -> None:
    found = compare("Who is the composer of the song?", "Who wrote the song?")
    assert found.replaced
    assert not found.exchanged
    stored = "¿Cómo se dice «hola» en alemán? Responde en una lista."
    assert compare(stored, "¿Cómo se dice «hola» en alemán? Responde en un solo párrafo.").exchanged
