"""Which pieces of a stream are passed on at once, and which are kept until the answer is paid."""

from __future__ import annotations

import pytest

from gateway.admission.hold_gate import HoldGate
from gateway.admission.no_hold import EVER, NoHold
from gateway.domain.answer import Sink
from tests.cache.conftest import Given


class Burst(Given):
    """A stream of which the second piece arrives together with the end."""

    stream, over = True, False

    def __init__(self) -> None:
        super().__init__()
        self.left = [b"first", b"second"]

    async def pipe_to(self, take: Sink) -> bool:
        while self.left:
            piece = self.left.pop(0)
            self.over = not self.left
            assert self.attempt is not None
            self.attempt.came(len(piece), 1)
            if not take(piece):
                return True
        return False


class Growing(NoHold):
    """Covers nothing at first."""

    def __init__(self) -> None:
        self.covers: float = 0
        self.asked: list[int] = []

    async def grow(self, output_tokens: int, seen: int) -> None:
        self.asked.append(seen)
        self.covers = seen


@pytest.mark.parametrize("grows", [False, True])
async def test_a_piece_that_arrives_with_the_end_is_kept_and_all_others_are_passed_on(grows: bool) -> None:
    answer, hold, passed, kept = Burst(), Growing() if grows else NoHold(), list[bytes](), list[bytes]()

    def sink(into: list[bytes]) -> Sink:
        def take(piece: bytes) -> bool:
            into.append(piece)
            return True

        return take

    assert answer.attempt is not None
    gate = HoldGate(answer, answer.attempt, hold, None)  # type: ignore[arg-type]  # only a note when it truncates
    assert not await gate.pipe_to(sink(passed), sink(kept))
    assert (passed, kept) == ([b"first"], [b"second"])
    if isinstance(hold, Growing):
        assert hold.asked == [1, 2]  # before each piece that was not covered
    else:
        assert hold.covers == EVER
