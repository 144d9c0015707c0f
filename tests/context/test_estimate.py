from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.count import Counter
from gateway.context.estimate import estimate, estimate_lines

TEXTS = {
    "english": (
        "Our shop in Leeds closes at six on weekdays, so the parcel has to be at the counter before half past five. "
        "If you cannot make it, tell us the day before and we will keep it behind the till for a week. Nobody is "
        "charged for that, although we do ask people to bring the slip that came with the letter."
    ),
    "spanish": (
        "La reunión del próximo jueves se traslada a la sala pequeña porque están pintando el pasillo. ¿Podrías avisar "
        "a los compañeros de Málaga? Según el acta del año pasado, el presupuesto también quedó aplazado, así que "
        "convendría traer las cifras ya revisadas y una explicación sencilla de cada cambio."
    ),
    "portuguese": (
        "A máquina de lavar parou no meio da programação e não há maneira de abrir a porta. Já experimentei desligar "
        "a ficha durante dez minutos, como diz o manual, mas a luz vermelha continua acesa. Será que a peça que "
        "vocês trocaram em março ainda está na garantia? Preciso de uma resposta até amanhã à tarde."
    ),
    "chinese": "如果明天下雨，我们就把会议改到线上进行。请提前把需要讨论的材料发给大家，并且注明每一部分由谁负责。" * 4,
    "code": (
        "def settle(self, cost: int) -> None:\n    if self._done:\n        return\n    self._done = True\n"
        "    for account, share in self._shares.items():\n        account.busy -= share\n"
        "        account.pending += max(cost, 0)\n    log.debug('settled %d', cost)\n"
    )
    * 3,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_lies_within_a_fifth_of_the_exact_count(kind: str, counter: Counter) -> None:
    exact = counter.count(TEXTS[kind])
    assert abs(estimate(TEXTS[kind]) - exact) <= 0.2 * exact


def test_nothing_is_nothing_and_anything_is_something() -> None:
    assert estimate("") == 0
    assert estimate("a") == 1
    assert estimate("\ud800") >= 1


@pytest.mark.parametrize("width", [16, 32, 40, 64, 80, 100, 128])
def test_a_long_table_is_judged_by_all_of_its_columns(width: int) -> None:
    row = f"{'2026-01-07 12:30:59':20}{'delivered to the harbour office':60}{'00341.50':48}"[: width - 1] + "\n"
    assert abs(estimate(row * 1000) - 1000 * estimate(row)) <= 0.15 * 1000 * estimate(row)


def test_a_long_mixed_text_is_judged_from_a_sample_and_still_right(counter: Counter) -> None:
    text = "\n".join(TEXTS.values()) * 60
    exact = counter.count(text)
    assert abs(estimate(text) - exact) <= 0.2 * exact


@given(st.lists(st.tuples(st.text("ab 1,\n{é漢", max_size=40), st.sampled_from((0, 1, 9, 90))), max_size=60))
def test_lines_are_estimated_as_one_text(lines: list[tuple[str, int]]) -> None:
    texts = [text * times for text, times in lines]
    assert estimate_lines(texts) == estimate("\n".join(texts))


@given(st.text("aB 1\n{→“\u2500é漢😀я", max_size=60))
def test_wide_characters_have_their_weights_in_every_mixture(text: str) -> None:
    weights = {"→": 0.253, "“": 0.253, "\u2500": 0.253, "é": 0.942, "漢": 0.761, "😀": 2.0, "я": 0.336}
    weights |= {"a": 0.242, "B": 0.242, " ": 0.049, "1": 0.721, "\n": 0.921, "{": 0.388}
    assert abs(estimate(text) - sum(weights[each] for each in text) - 0.5) <= 0.5 + 1e-6
