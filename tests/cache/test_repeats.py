from __future__ import annotations

import pytest

from gateway.domain.request import Controls
from tests.cache.conftest import Worker, request, tenant

WHO = tenant()
STORED, AGAIN = "How do I bake bread?", "how do I bake bread"
"""The same to the verifier, not to the letter."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"user": "ana"}, {"user": "ana"}),
        ({"safety_identifier": "ana"}, {"user": "ana"}),
        ({"controls": Controls(session="s1")}, {"controls": Controls(session="s1")}),
    ],
)
async def test_who_asks_again_in_other_words_gets_a_new_answer(
    worker: Worker, first: dict[str, object], second: dict[str, object]
) -> None:
    await worker.serve(request(STORED, **first), WHO)  # type: ignore[arg-type]
    assert (await worker.ask(request(AGAIN, **second), WHO)).cache == "miss"  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [{"user": "eva"}, {}, {"controls": Controls(session="s2")}])
async def test_somebody_else_gets_the_stored_answer(worker: Worker, other: dict[str, object]) -> None:
    await worker.serve(request(STORED, user="ana"), WHO)
    assert (await worker.ask(request(AGAIN, **other), WHO)).cache == "semantic"  # type: ignore[arg-type]


async def test_what_was_once_given_by_meaning_is_not_given_to_the_same_user_again(worker: Worker) -> None:
    await worker.serve(request(STORED, user="ana"), WHO)
    assert (await worker.ask(request(AGAIN, user="eva"), WHO)).cache == "semantic"
    assert (await worker.ask(request(AGAIN + "?!", user="eva"), WHO)).cache == "miss"


async def test_the_same_request_to_the_letter_is_a_retry_and_hits(worker: Worker) -> None:
    await worker.serve(request(STORED, user="ana"), WHO)
    assert (await worker.ask(request(STORED, user="ana"), WHO)).cache == "exact"


async def test_requests_that_name_nobody_may_repeat_each_other(worker: Worker) -> None:
    await worker.serve(request(STORED), WHO)
    assert (await worker.ask(request(AGAIN), WHO)).cache == "semantic"


async def test_another_worker_knows_who_asked(worker: Worker, make_worker: object) -> None:
    from tests.fakes.embedder import FakeEmbedder

    other = await make_worker(FakeEmbedder())  # type: ignore[operator]
    await worker.serve(request(STORED, user="ana"), WHO)
    await other.catch_up()
    assert (await other.ask(request(AGAIN, user="ana"), WHO)).cache == "miss"
    assert (await other.ask(request(AGAIN, user="eva"), WHO)).cache == "semantic"
