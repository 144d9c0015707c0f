"""Spanish and Portuguese were not measured: such requests go to the reference. Own prompts, as people write them."""

from __future__ import annotations

import pytest

from gateway.routing.difficulty.grader import Grader

SPANISH = (
    "¿Cuál es la capital de Australia?",
    "Resume este correo en dos frases y propón una respuesta amable.",
    "Necesito una receta fácil con pollo, arroz y pimientos para cuatro personas.",
    "Un tren sale a las 9:40 y llega a las 13:05. ¿Cuántos minutos dura el viaje?",
    "Escribe una función en Python que devuelva el elemento mayor de una lista.",
    "¿Qué diferencia hay entre una fracción propia y una impropia?",
    "traduce al inglés: nos vemos mañana en la estación",
    "Explica por qué el cielo es azul a un niño de ocho años.",
    "Ana tiene 24 manzanas y regala un tercio a su hermano. ¿Cuántas le quedan?",
    "Dime tres ventajas y tres desventajas del teletrabajo.",
    "como puedo cambiar la contraseña de mi cuenta",
    "Redacta una carta de presentación para un puesto de contable.",
    "¿Cuál de los siguientes no es un mamífero?\nA. ballena\nB. murciélago\nC. pingüino\nD. delfín\nRespuesta:",
    "Calcula el área de un círculo cuyo radio mide 7 centímetros.",
    "¿En qué año empezó la Segunda Guerra Mundial y cuáles fueron sus causas principales?",
    "Corrige la ortografía de este párrafo sin cambiar el estilo.",
)
PORTUGUESE = (
    "Qual é a capital da Austrália?",
    "Resuma este e-mail em duas frases e sugira uma resposta educada.",
    "Preciso de uma receita fácil com frango, arroz e pimentão para quatro pessoas.",
    "Um trem sai às 9h40 e chega às 13h05. Quantos minutos dura a viagem?",
    "Escreva uma função em Python que devolva o maior elemento de uma lista.",
    "Qual a diferença entre uma fração própria e uma imprópria?",
    "traduza para o inglês: a gente se vê amanhã na estação",
    "Explique a uma criança de oito anos por que o céu é azul.",
    "Ana tem 24 maçãs e dá um terço ao irmão. Com quantas ela fica?",
    "Diga três vantagens e três desvantagens do trabalho remoto.",
    "como eu faço para trocar a senha da minha conta",
    "Redija uma carta de apresentação para uma vaga de contador.",
    "Qual dos seguintes não é um mamífero?\nA. baleia\nB. morcego\nC. pinguim\nD. golfinho\nResposta:",
    "Calcule a área de um círculo cujo raio mede 7 centímetros.",
    "Em que ano começou a Segunda Guerra Mundial e quais foram as suas principais causas?",
    "Corrija a ortografia deste parágrafo sem mudar o estilo.",
)
ENGLISH = (
    "What is the capital of Australia?",
    "I need an easy recipe with chicken, rice and peppers for four people.",
    "A train leaves at 9:40 and arrives at 13:05. How many minutes does the trip take?",
    "Write a function in Python that returns the largest element of a list.",
    "What is the difference between a proper and an improper fraction?",
    "Explain to a child of eight why the sky is blue.",
    "Ana has 24 apples and gives a third to her brother. How many are left?",
    "Give three advantages and three disadvantages of working from home.",
    "how can I change the password of my account",
    "Which of the following is not a mammal?\nA. whale\nB. bat\nC. penguin\nD. dolphin\nAnswer:",
    "Calculate the area of a circle whose radius is 7 centimetres.",
    "In which year did the Second World War begin, and what were its main causes?",
)


@pytest.mark.parametrize("prompts", [SPANISH, PORTUGUESE], ids=["Spanish", "Portuguese"])
def test_requests_in_a_language_that_was_not_measured_go_to_the_reference(
    grader: Grader, prompts: tuple[str, ...]
) -> None:
    """A very short question of words that English has too (“capital”, “Australia”) may pass for English."""
    assert len([prompt for prompt in prompts if not grader.grade(prompt).abstained]) <= 1


def test_the_same_requests_in_english_are_graded(grader: Grader) -> None:
    assert [prompt for prompt in ENGLISH if grader.grade(prompt).abstained] == []
