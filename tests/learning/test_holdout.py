from __future__ import annotations

from gateway.domain.request import CompletionRequest, Controls
from gateway.learning.shadow.holdout import Holdout
from tests.support.requests import chat_request


def session_request(session: str) -> CompletionRequest:
    return chat_request(controls=Controls(session=session))


def test_about_the_given_share_of_conversations_is_held_out() -> None:
    holdout = Holdout(0.2)
    held = sum(holdout.holdout(session_request(f"session {number}")) for number in range(2000))
    assert 300 < held < 500


def test_a_conversation_is_held_out_always_or_never() -> None:
    holdout = Holdout(0.5)
    for number in range(50):
        assert holdout.holdout(session_request(str(number))) == holdout.holdout(session_request(str(number)))


def test_none_is_held_out_by_default() -> None:
    assert not any(Holdout(0.0).holdout(session_request(str(number))) for number in range(100))
