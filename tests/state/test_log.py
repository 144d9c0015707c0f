"""Every follower handles every entry, in order, and starts anew when the server lost its data."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from gateway.state.redis.log import PAGE, IndexLog, Replacement
from tests.support.waiting import until


class Follower:
    """What a worker would know."""

    def __init__(self, log: IndexLog) -> None:
        self.log = log
        self.known: list[bytes] = []
        self.resets = 0
        self.tasks = Tasks()
        self.tasks.spawn(log.follow(self.handle, self.reset), "follow")

    def handle(self, entry: str, fields: dict[bytes, bytes]) -> None:
        if fields[b"v"] == b"bad":
            raise ValueError(entry)
        self.known.append(fields[b"v"])

    def reset(self) -> None:
        self.resets += 1
        self.known.clear()


async def test_history_comes_first_and_news_follow(own: State) -> None:
    log = IndexLog(own, "index")
    values = [b"%d" % number for number in range(PAGE * 2 + 10)]
    for value in values:
        await log.append({"v": value})
    follower = Follower(IndexLog(own, "index"))
    await until(lambda: follower.known == values)
    await log.append({b"v": b"\xff\x00"})
    await until(lambda: follower.known[-1] == b"\xff\x00")
    await log.append({"v": b"last"})
    await until(lambda: follower.known[-1] == b"last" and follower.log.current)
    assert follower.resets == 0
    await follower.tasks.aclose()


async def test_the_oldest_entries_are_trimmed(state: State) -> None:
    log = IndexLog(state, "short", max_length=100)
    for _ in range(500):
        await log.append({"v": b"x"})
    assert 100 <= await state.call("XLEN", state.key("log", "short")) < 300


async def test_whoever_follows_counts_weights(state: State) -> None:
    log = IndexLog(state, "heavy", max_length=1000)
    follower = Follower(log)
    for number in range(100):
        await log.append({"v": b"%d" % number + b"x" * 5000}, weight=100)  # large: the server trims by whole nodes
    await until(lambda: len(follower.known) == 100)
    await log.append({"v": b"last" + b"x" * 5000}, weight=100)
    assert 10 <= await state.call("XLEN", state.key("log", "heavy")) <= 12
    late = Follower(IndexLog(state, "heavy"))
    await until(lambda: bool(late.known) and late.known[-1].startswith(b"last"))
    for one in (follower, late):
        await one.tasks.aclose()


async def test_a_busy_log_is_read_a_few_times_a_second(own: State) -> None:
    log = IndexLog(own, "index")
    follower = Follower(log)
    await until(lambda: log.current)
    for number in range(50):
        await log.append({"v": b"%d" % number})
        await asyncio.sleep(0.005)
    await until(lambda: len(follower.known) == 50)
    stats = await own.call("INFO", "commandstats")
    (line,) = [line for line in stats.split() if line.startswith(b"cmdstat_xread:")]
    assert int(line.split(b"calls=")[1].split(b",")[0]) < 30
    await follower.tasks.aclose()


async def test_an_entry_that_cannot_be_handled_does_not_stop_the_rest(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    log = IndexLog(state, "index")
    follower = Follower(log)
    for value in (b"1", b"bad", b"2"):
        await log.append({"v": value})
    await until(lambda: follower.known == [b"1", b"2"])
    assert "could not be handled" in caplog.text
    assert log.stats()["rejected"] == 1
    await follower.tasks.aclose()


async def test_a_restarted_server_is_followed_on_without_a_reset(server: EmbeddedServer, own: State) -> None:
    log = IndexLog(own, "index")
    follower = Follower(log)
    await log.append({"v": b"before"})
    await until(lambda: follower.known == [b"before"])
    await asyncio.to_thread(server.kill)
    await until(lambda: not follower.log.current)
    await asyncio.to_thread(server.start)
    await until(lambda: own.healthy)
    await log.append({"v": b"after"})
    await until(lambda: follower.known == [b"before", b"after"])
    assert follower.resets == 0
    await follower.tasks.aclose()


async def test_a_wiped_server_means_forget_and_start_anew(own: State) -> None:
    log = IndexLog(own, "index")
    follower = Follower(log)
    await log.append({"v": b"old"})
    await until(lambda: follower.known == [b"old"])
    await own.call("FLUSHALL")
    await log.append({"v": b"new"})
    await until(lambda: follower.resets == 1 and follower.known == [b"new"])
    await follower.tasks.aclose()


async def test_a_server_that_lost_its_last_moments_means_start_anew(server: EmbeddedServer, own: State) -> None:
    log = IndexLog(own, "index")
    follower = Follower(log)
    for value in (b"1", b"2"):
        await log.append({"v": value})
    await until(lambda: follower.known == [b"1", b"2"])
    dump = await own.call("DUMP", own.key("log", "index"))
    await log.append({"v": b"lost"})
    await until(lambda: follower.known[-1] == b"lost")
    await own.call("RESTORE", own.key("log", "index"), 0, dump, "REPLACE")
    await own.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await until(lambda: follower.resets == 1 and follower.known == [b"1", b"2"])
    await follower.tasks.aclose()


async def test_a_follower_may_start_before_the_server(server: EmbeddedServer) -> None:
    await asyncio.to_thread(server.stop)
    state = State(server.url)
    await state.open()
    log = IndexLog(state, "index")
    follower = Follower(log)
    await asyncio.to_thread(server.start)
    await until(lambda: state.healthy)
    await log.append({"v": b"1"})
    await until(lambda: follower.known == [b"1"])
    await follower.tasks.aclose()
    await state.aclose()


async def test_one_can_wait_until_all_that_is_there_was_handled(own: State) -> None:
    for number in range(PAGE + 1):
        await IndexLog(own, "index").append({"v": b"%d" % number})
    follower, empty = Follower(IndexLog(own, "index")), Follower(IndexLog(own, "empty"))
    await empty.log.caught_up(5.0)
    await follower.log.caught_up(5.0)
    assert len(follower.known) == PAGE + 1
    for one in (follower, empty):
        await one.tasks.aclose()


async def test_waiting_for_a_log_that_nobody_can_read_ends_in_time(own: State) -> None:
    with pytest.raises(StateUnavailable, match=r"within 0\.05 s"):
        await IndexLog(own, "index").caught_up(0.05)


async def test_entries_are_rewritten_in_place_of_others_and_every_follower_hears_of_them(own: State) -> None:
    log = IndexLog(own, "rewritten")
    values = [b"%d" % number for number in range(PAGE + 10)]
    for value in values:
        await log.append({"v": value})
    follower = Follower(IndexLog(own, "rewritten"))
    await until(lambda: follower.known == values)

    def change(fields: Mapping[bytes, bytes]) -> Replacement | None:
        if fields[b"v"] == b"3":
            return Replacement({"v": b"three"}, 7)
        if fields[b"v"] == b"5":
            raise ValueError("unreadable")
        return Replacement(None) if fields[b"v"] == b"70" else None

    assert await log.rewrite(change) == 2
    assert await log.rewrite(change) == 0
    await until(lambda: follower.known == [*values, b"three"])
    later = Follower(IndexLog(own, "rewritten"))
    await until(lambda: later.known == [*(each for each in values if each not in (b"3", b"70")), b"three"])
    await follower.tasks.aclose()
    await later.tasks.aclose()


async def test_an_empty_log_has_nothing_to_rewrite(own: State) -> None:
    assert await IndexLog(own, "empty").rewrite(lambda fields: Replacement(None)) == 0
