from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

from gateway.batches.forms import FORMS
from gateway.batches.order import PAGE, Queue, placed, undone
from tests.batches.conftest import URL, jsonl, line

FORM = FORMS[URL]
BOOK = "Once upon a time there was a gateway. " * 200
MANUAL = "Hold the device with both hands, then. " * 200


def about(custom_id: str, *texts: str, model: str = "auto", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    return line(custom_id, body={"model": model, "messages": messages, **more})


def written(tmp_path: Path, *lines: dict[str, Any]) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(jsonl(*lines))
    return path


def order(path: Path, done: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """The ids, in sending order."""
    raw = path.read_bytes()
    return [FORM.read(1, raw[each.start : each.start + each.length]).custom_id for each in placed(path, FORM, done)]


def test_lines_that_begin_alike_follow_each_other(tmp_path: Path) -> None:
    lines = [
        about(f"{name}{chapter}{number}", text + chapter * 3000, f"question {number}", model=model)
        for name, text in (("book", BOOK), ("manual", MANUAL))
        for model in ("a", "b")
        for chapter in "xyz"
        for number in range(3)
    ]
    for place, each in enumerate(lines):
        each["custom_id"] += f"-{each['body']['model']}-{place}"
    random.Random(7).shuffle(lines)
    found = order(written(tmp_path, *lines))
    assert len(found) == len(set(found)) == 36

    def runs(key: Any) -> int:
        """How often what `key` tells changes along the way."""
        seen = [key(name) for name in found]
        return 1 + sum(one != next_ for one, next_ in itertools.pairwise(seen))

    assert runs(lambda name: name.split("-")[1]) == 2  # models
    assert runs(lambda name: (name.split("-")[1], name[0])) == 4  # books of each model
    assert runs(lambda name: (name.split("-")[1], name.split("-")[0][:-1])) == 12  # chapters of each book


def test_short_lines_stay_in_the_clients_order(tmp_path: Path) -> None:
    names = [f"q{number}" for number in range(50)]
    random.Random(7).shuffle(names)
    path = written(tmp_path, *(about(name, name) for name in names))
    assert order(path) == names
    assert {each.group for each in placed(path, FORM, set())} == {b""}


def test_what_a_model_reads_first_counts_first(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": BOOK}}]
    lines = [about("a", MANUAL, tools=tools), about("b", MANUAL), about("c", "else", tools=tools)]
    found = order(written(tmp_path, *lines))
    assert abs(found.index("a") - found.index("c")) == 1


def test_lines_with_a_result_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, about("a", "a"), about("b", "b"), about("c", "c"))
    assert order(path, {"b"}) == ["a", "c"]
    assert [each.custom_id for each in undone(path, FORM, {"a"})] == ["b", "c"]


def test_what_cannot_be_written_again_has_no_beginning_to_share(tmp_path: Path) -> None:
    deep = jsonl(about("a", "x")).replace(b'"x"', b"[" * 500 + b"]" * 500)
    path = tmp_path / "lines"
    path.write_bytes(deep)
    assert len(placed(path, FORM, set())) == 1


async def taken(queue: Queue) -> tuple[bytes, str]:
    async with asyncio.timeout(20):
        found = await queue.take()
    assert found is not None
    return found[0], found[1].custom_id


async def opened(path: Path) -> Queue:
    return await asyncio.to_thread(Queue, path, FORM, set())


async def test_the_first_of_a_group_goes_ahead_and_others_are_let_past(tmp_path: Path) -> None:
    path = written(
        tmp_path, about("a1", BOOK, "1"), about("a2", BOOK, "2"), about("b1", MANUAL, "1"), about("b2", MANUAL, "2")
    )
    with await opened(path) as queue:
        (first, one), (second, two) = await taken(queue), await taken(queue)
        assert {one[1], two[1]} == {"1"}
        waiting = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await queue.leave(second)
        found = await waiting
        assert found is not None
        assert found[1].custom_id == two[0] + "2"
        await queue.leave(second)
        await queue.leave(first)
        assert (await taken(queue))[1] == one[0] + "2"
        assert await queue.take() is None


async def test_a_group_that_was_led_flows(tmp_path: Path) -> None:
    path = written(tmp_path, *(about(f"a{number}", BOOK, str(number)) for number in range(PAGE * 2)))
    with await opened(path) as queue:
        group, first = await taken(queue)
        await queue.leave(group)
        rest = [(await taken(queue))[1] for _ in range(PAGE * 2 - 1)]
        assert [first, *rest] == [f"a{number}" for number in range(PAGE * 2)]
        assert await queue.take() is None
