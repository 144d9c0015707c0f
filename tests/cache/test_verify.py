"""Pairs written by hand, and our own Spanish and Portuguese sentences in data/questions_es_pt.jsonl."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from gateway.cache.quality.error_bound import LEAST, LEVELS
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.verify import FOREIGN_BAR, Scorer, Verifier

ROWS = [orjson.loads(line) for line in (Path(__file__).parent / "data/questions_es_pt.jsonl").read_bytes().splitlines()]
ORDERS = [orjson.loads(line) for line in (Path(__file__).parent / "data/word_order.jsonl").read_bytes().splitlines()]
KEPT, MOST_ORDERS = 0.95, 0.02
CLOSE = 0.95
"""Nearer than most of these pairs lie, so that the verifier has to refuse by itself."""


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return Verifier.load()


SAME = [
    ("What is the boiling point of water?", "what's the boiling point of water"),
    ("How do I sort a list in Python?", "HOW DO I SORT A LIST IN PYTHON"),
    ("How to bake bread?", "Could you please tell me how to bake bread?"),
    ("How to bake bread?", "Hi! Quick question: how to bake bread? Thanks a lot"),
    ("What is 2 + 2?", "What is 2+2"),
    ("Plan a trip of 3 days to Rome", "Plan a trip of three days to Rome"),
    ("What is the color of the sky?", "What is the colour of the sky?"),
    ("How do developers test software?", "How do develoeprs test software?"),
    ("How do I transfer 10,000 dollars?", "How do I transfer 10000 dollars?"),
    ("I can't log in, what should I do?", "I cannot log in, what should I do?"),
    ("Translate into Spanish:\n\nThe cat sleeps.", "Hello! Translate into Spanish:\nThe cat sleeps."),
    ("¿Cómo renuevo el pasaporte?", "como renuevo el pasaporte"),
    ("¿Cómo renuevo el pasaporte?", "Buenas, quisiera saber cómo renuevo el pasaporte. Gracias"),
    ("¿Por qué el cielo es azul?", "xq el cielo es azul"),
    ("¿Dónde alquilo un coche en Quito?", "¿Dónde alquilo un carro en Quito?"),
    ("Redacta una carta de renuncia", "Redacte una carta de renuncia"),
    ("Como renovo o passaporte?", "Olá, uma dúvida: como renovo o passaporte? Obrigado"),
    ("Você sabe quanto custa uma passagem para o Rio?", "vc sabe quanto custa uma passagem pro Rio"),
    ("Por que o céu é azul?", "pq o ceu e azul?"),
    ("How do I reset my password?", "How do you reset your password?"),
]
OTHER = [
    ("What is the fee for a passport renewal in Lisbon?", "How much is the fee for a passport renewal in Porto?"),
    ("How do I get from the airport to Madrid?", "What is the best way to get from the airport to Seville?"),
    ("¿Cuánto digo que gano?", "¿Cuánto diga que gano?"),
    ("turn it on", "turn it off"),
    ("When was Abbey Road recorded?", "When was Abbey Road released?"),
    ("Who composed the Star-Spangled Banner?", "Who wrote the Star-Spangled Banner?"),
    ("How many brothers did Mozart have?", "How many siblings did Mozart have?"),
    ("What is the oldest school in England?", "What is the oldest university in England?"),
    ("Who is the best rock artist?", "Who is the best rock band?"),
    ("How much does a new bathroom cost?", "How much does a new toilet cost?"),
    ("Which date format should I use in SQL?", "Which date type should I use in SQL?"),
    ("What is an abstract class?", "What is an abstract course?"),
    ("Is it ok to run every day?", "Is it good to run every day?"),
    ("¿Qué es una torta mexicana?", "¿Qué es una tarta mexicana?"),
    ("¿Qué le regalo a mi amiga?", "¿Qué le regalo a mi amigo?"),
    ("¿Qué regalo para una amiga?", "¿Qué regalo para un amigo?"),
    ("¿Cuánto miden las niñas de 5 años?", "¿Cuánto miden las chicas de 5 años?"),
    ("Quais são os maiores órgãos do corpo humano?", "Quais são os principais órgãos do corpo humano?"),
    ("What is your favorite color?", "What is my favorite color?"),
    ("¿Cuál es tu nombre?", "¿Cuál es mi nombre?"),
    ("¿Cuáles son tus derechos?", "¿Cuáles son mis derechos?"),
    ("Qual é o seu nome?", "Qual é o meu nome?"),
    ("Qual é a tua cor favorita?", "Qual é a minha cor favorita?"),
    ("Which airlines fly to Cuba?", "Which airlines fly in Cuba?"),
    ("Turn the light on", "Please turn the light off"),
    ("Is it legal to smoke in Spain?", "Is it legal to smoke in Italy?"),
    ("is it legal to smoke in spain", "is it legal to smoke in italy"),
    ("Send 50 EUR to Ana", "Send 500 EUR to Ana"),
    ("Convert 5 kg to grams", "Convert 5 lb to grams"),
    ("Who won the 1998 World Cup?", "Who won the 2002 World Cup?"),
    ("How do I enable dark mode?", "How do I disable dark mode?"),
    ("Who is taller, Ana or Eva?", "Who is taller, Eva or Ana?"),
    ("Convert JSON to YAML", "Convert YAML to JSON"),
    ("How do I convert a list to a tuple in Python?", "How can I convert a tuple to a list in Python?"),
    ("How do I send money from my bank to my friend?", "How can I send money to my bank from my friend?"),
    ("Flights from Madrid to Paris", "Cheap flights to Madrid from Paris"),
    ("¿Cómo puedo pasar fotos del móvil al ordenador?", "¿Cómo paso fotos del ordenador al móvil?"),
    ("Como passo fotos do celular para o computador?", "Como posso passar fotos do computador para o celular?"),
    ("Como converter dólar para euro?", "Como eu converto euro para dólar?"),
    ("Can I take ibuprofen with alcohol?", "Can I take ibuprofen without alcohol?"),
    ("Can I take ibuprofen with aspirin?", "Can I take ibuprofen with paracetamol?"),
    ("Should I sell the house?", "Should I not sell the house?"),
    ("How do bees dance?", "Why do bees dance?"),
    ("Is the store open?", "Is the store closed?"),
    ("Will he win?", "Did he win?"),
    ("Should I go?", "Should he go?"),
    ("Is X > Y?", "Is X < Y?"),
    ("What is 2+2?", "What is 2-2?"),
    ("Explain recursion", "Explain iteration"),
    ("What is carbonated water?", "What is carbonated water? Answer in French."),
    ("What is carbonated water?", "What is carbonated water? Explain it to a child."),
    ("What does 'break a leg' mean?", "What does 'break the ice' mean?"),
    ("India: what is the oldest city?", "Japan: what is the oldest city?"),
    ("What does this do?\n```\nreturn x + 1\n```", "What does this do?\n```\nreturn x + 2\n```"),
    ("Summarise this:\nThe hotel has a pool.", "Summarise this:\nThe hotel has no pool."),
    ("Summarise this:\nThe hotel has a pool.", "Translate this:\nThe hotel has a pool."),
    ('Fix the grammar: "He go to school every day, mum"', 'Fix the grammar: "He go to school every day mum"'),
    ("Hi", "Thanks"),
    ("Yes", "No"),
    ("Apaga la luz", "Enciende la luz"),
    ("¿Puedo viajar con mi perro?", "¿Puedo viajar sin mi perro?"),
    ("¿Cómo voy de Quito a Lima?", "¿Cómo voy de Lima a Quito?"),
    ("¿Cuántos años tiene el rey?", "¿Cuántos hijos tiene el rey?"),
    ("Responde en inglés: ¿qué es un volcán?", "Responde en francés: ¿qué es un volcán?"),
    ("Meu avô está doente, o que eu faço?", "Minha avó está doente, o que eu faço?"),
    ("Como compro ações?", "Como vendo ações?"),
    ("Acende a luz da sala", "Apaga a luz da sala"),
    ("How do I renew my passport?", "¿Cómo renuevo mi pasaporte?"),
    ("¿Cómo renuevo el pasaporte?", "Como renovo o passaporte?"),
]


@pytest.mark.parametrize(("stored", "asked"), SAME)
def test_a_harmless_edit_is_the_same_question_both_ways(verifier: Verifier, stored: str, asked: str) -> None:
    assert verifier.verify(stored, asked, CLOSE).accepted
    assert verifier.verify(asked, stored, CLOSE).accepted


@pytest.mark.parametrize(("stored", "asked"), OTHER)
def test_an_edit_that_changes_the_answer_is_refused_both_ways(verifier: Verifier, stored: str, asked: str) -> None:
    assert not verifier.verify(stored, asked, CLOSE).accepted
    assert not verifier.verify(asked, stored, CLOSE).accepted


@pytest.mark.parametrize("row", [row for row in ROWS if not row["label"]], ids=lambda row: row["id"])
def test_of_our_spanish_and_portuguese_sentences_none_answers_another(verifier: Verifier, row: dict[str, str]) -> None:
    assert not verifier.verify(row["a"], row["b"], CLOSE).accepted


def test_harmless_edits_of_our_spanish_and_portuguese_sentences_are_mostly_kept(verifier: Verifier) -> None:
    kept = [verifier.verify(row["a"], row["b"], CLOSE).accepted for row in ROWS if row["label"]]
    assert sum(kept) >= KEPT * len(kept)


@pytest.mark.parametrize("language", ["en", "es", "pt"])
def test_the_same_words_in_another_order_are_another_question(verifier: Verifier, language: str) -> None:
    pairs = [row for row in ORDERS if row["lang"] == language]
    wrong = [row["id"] for row in pairs if verifier.verify(row["a"], row["b"], CLOSE).accepted]
    assert len(pairs) >= 150
    assert len(wrong) <= MOST_ORDERS * len(pairs), wrong
    assert not [row["id"] for row in pairs if verifier.verify(row["a"], row["b"], CLOSE, max_error=0.0).accepted]


def test_without_word_lists_only_some_negations_pass_of_the_edits_that_change_the_answer() -> None:
    bare = Verifier(load_words().without_lists(), Scorer.load())
    wrong = [row["kind"] for row in ROWS if not row["label"] and bare.verify(row["a"], row["b"], CLOSE).accepted]
    assert set(wrong) <= {"negation"}
    assert len(wrong) <= 0.05 * sum(not row["label"] for row in ROWS)


PARAPHRASES = [
    ("How can I learn to play chess well?", "What is the best way to get good at playing chess?"),
    ("Which documents do I need to open a bank account?", "What documents are needed for opening a bank account?"),
]


@pytest.mark.parametrize(("stored", "asked"), PARAPHRASES)
def test_a_paraphrase_passes_where_some_error_is_allowed_and_not_where_none_is(
    verifier: Verifier, stored: str, asked: str
) -> None:
    assert verifier.verify(stored, asked, CLOSE).reason == "paraphrase"
    assert not verifier.verify(stored, asked, CLOSE, max_error=0.0).accepted
    assert not verifier.verify(stored, asked, 0.5).accepted


def test_without_weights_only_harmless_differences_pass() -> None:
    verifier = Verifier(load_words(), None)
    assert verifier.verify(*SAME[0], CLOSE).accepted
    assert not verifier.verify(*PARAPHRASES[0], CLOSE).accepted


def test_in_other_languages_only_the_same_words_are_the_same_question(verifier: Verifier) -> None:
    assert verifier.verify("Wie alt ist der Rhein?", "wie alt ist der rhein", CLOSE).accepted
    assert not verifier.verify("Wie alt ist der Rhein?", "Wie alt ist die Elbe?", CLOSE).accepted
    assert not verifier.verify("莱茵河有多长？", "易北河有多长？", CLOSE).accepted


@pytest.mark.parametrize("text", ["", "?!", "🙂", "\n\n", "```", "a" * 5000, "\u202e", "'''\"\"«»"])
def test_odd_texts_are_refused_or_equal_and_never_an_error(verifier: Verifier, text: str) -> None:
    assert not verifier.verify(text, "What is 1 + 1?", CLOSE).accepted
    assert verifier.verify(text, text, CLOSE).accepted


def test_weights_of_other_features_are_not_taken() -> None:
    with pytest.raises(ValueError, match="fit it again"):
        Scorer({"names": ["other"]})


@pytest.mark.parametrize(("allowed", "least"), LEAST)
def test_what_passes_is_as_certain_as_its_level_asks(verifier: Verifier, allowed: float, least: float) -> None:
    verdicts = [verifier.verify(row["a"], row["b"], CLOSE, max_error=allowed) for row in ROWS]
    scores = [verdict.score for verdict in verdicts if verdict.accepted]
    assert len(scores) > 100
    assert min(scores) >= least >= LEVELS[0]
    weighed = [verdict for verdict in verdicts if verdict.reason == "unsure" and verdict.score]
    assert not any(verdict.score >= max(least, FOREIGN_BAR) for verdict in weighed)


@pytest.mark.parametrize(
    ("stored", "asked", "cosine"),
    [
        ("What is the fee for a dog licence in Lisbon?", "How much is the fee for a fishing licence in Lisbon?", 0.75),
        (
            "What is the fee for a parking permit in Lisbon?",
            "Which office deals with a parking permit in Lisbon?",
            0.84,
        ),
        (
            "What is the phone number for a parking permit in Lisbon?",
            "How many days does a parking permit take in Lisbon?",
            0.8,
        ),
    ],
)
def test_another_noun_is_another_question_in_another_frame_too(
    verifier: Verifier, stored: str, asked: str, cosine: float
) -> None:
    """Cosines as the packaged embedder gives them."""
    assert not verifier.verify(stored, asked, cosine).accepted
    assert not verifier.verify(asked, stored, cosine).accepted


def test_the_more_questions_are_stored_the_less_certain_is_a_paraphrase(verifier: Verifier) -> None:
    pair = "What is the best way to learn Spanish?", "How can I learn Spanish well?"
    scores = [verifier.verify(*pair, 0.9, among=among).score for among in (1, 1500, 3000, 30_000)]
    assert scores[0] == scores[1] > scores[2] > scores[3] > 0
    odds = [score / (1 - score) for score in scores]
    assert odds[3] == pytest.approx(odds[0] / 20)
    same = "How to bake bread?", "how to bake bread"
    assert verifier.verify(*same, 0.99, among=1_000_000).accepted, "it does not depend on the other questions"


def test_a_longer_replacement_needs_a_high_cosine(verifier: Verifier) -> None:
    stored, asked = "Who is the composer of the song Blue Rain?", "Who wrote the song Blue Rain?"
    assert verifier.verify(stored, asked, 0.93).accepted
    assert not verifier.verify(stored, asked, 0.87).accepted
