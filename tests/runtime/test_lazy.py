from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

from gateway.runtime.lazy import Lazy


async def test_it_is_built_when_asked_for_and_once() -> None:
    built: list[int] = []

    def build() -> int:
        sleep(0.01)
        built.append(len(built))
        return 7

    lazy = Lazy(build)
    assert not lazy.ready
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: lazy.get(), range(8))) == [7] * 8
    assert await lazy.load() == 7
    assert (lazy.ready, built) == (True, [0])


async def test_a_build_that_failed_is_tried_again() -> None:
    results = iter([OSError("away"), 7])

    def build() -> int:
        if isinstance(result := next(results), OSError):
            raise result
        return result

    lazy = Lazy(build)
    with pytest.raises(OSError, match="away"):
        await lazy.load()
    assert await lazy.load() == 7
