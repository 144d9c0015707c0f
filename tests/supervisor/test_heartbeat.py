"""The pipe between a worker and its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal

from gateway.supervisor.heartbeat import FAILED, Heartbeat, reporter


async def test_stages_and_a_last_error_arrive_and_each_change_is_told() -> None:
    changes: list[str] = []
    heartbeat = Heartbeat(lambda: changes.append(heartbeat.stage))
    say = reporter(os.dup(heartbeat.writer))
    for line in ("open", "open", "ready", "who knows", f"{FAILED}Sorry: two\nlines"):
        say(line)
        heartbeat.listen()
    assert changes == ["open", "ready"]
    assert heartbeat.error == "Sorry: two; lines"
    heartbeat.hand_over()
    heartbeat.close()
    heartbeat.listen()


async def test_a_worker_that_nobody_listens_to_any_more_leaves() -> None:
    heartbeat = Heartbeat()
    writer = os.dup(heartbeat.writer)
    heartbeat.hand_over()
    heartbeat.close()
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    try:
        reporter(writer)("ready")
        await asyncio.wait_for(asked.wait(), 30)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        os.close(writer)


async def test_a_supervisor_that_does_not_listen_holds_nobody_up() -> None:
    heartbeat = Heartbeat()
    say = reporter(os.dup(heartbeat.writer))
    for _ in range(100_000):
        say("ready")
    heartbeat.hand_over()
    heartbeat.close()
