"""The door to the Redis protocol, on a real Valkey and a real Redis 6.2."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.errors import StateUnavailable
from gateway.state.redis.connection import Script, State
from gateway.state.redis.embedded import EmbeddedServer
from tests.state.conftest import Serve, make_certificate, pump
from tests.support.waiting import until

ADD = Script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


async def test_a_call_gives_the_servers_reply(own: State) -> None:
    assert await own.call("SET", own.key("a"), b"\xff\x00", "PX", 60_000) == b"OK"
    assert await own.call("GET", own.key("a")) == b"\xff\x00"
    assert await own.call("GET", own.key("none")) is None
    assert await own.call("INCRBY", own.key("n"), 7) == 7


async def test_a_pipeline_gives_one_reply_per_command(own: State) -> None:
    commands = [("RPUSH", own.key("l"), "a", "b"), ("LRANGE", own.key("l"), 0, -1), ("GET", own.key("none"))]
    assert await own.pipeline(commands) == [2, [b"a", b"b"], None]
    assert await own.pipeline([]) == []


async def test_a_script_runs_also_after_the_server_forgot_it(own: State) -> None:
    assert await own.run(ADD, [own.key("n")], [2]) == 2
    await own.call("SCRIPT", "FLUSH")
    assert await own.run(ADD, [own.key("n")], [3]) == 5


async def test_an_error_reply_is_raised_and_the_connection_stays(own: State) -> None:
    await own.call("SET", own.key("s"), "text")
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await own.call("LPUSH", own.key("s"), "x")
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await own.pipeline([("SET", own.key("t"), 1), ("LPUSH", own.key("s"), "x"), ("SET", own.key("u"), 1)])
    assert await own.pipeline([("GET", own.key("t")), ("GET", own.key("u"))]) == [b"1", b"1"]
    assert own.stats()["connects"] == 1


async def test_a_thousand_callers_at_once_share_the_connection(own: State) -> None:
    replies = await asyncio.gather(*(own.call("ECHO", str(number)) for number in range(1000)))
    assert replies == [str(number).encode() for number in range(1000)]


async def test_a_big_value_comes_back_whole(own: State) -> None:
    value = os.urandom(3 * 2**20)
    await own.call("SET", own.key("big"), value)
    assert await own.call("GET", own.key("big")) == value


async def test_a_cancelled_caller_leaves_the_others_their_replies(own: State) -> None:
    loop = asyncio.get_running_loop()
    calls = [loop.create_task(own.call("ECHO", str(number))) for number in range(10)]
    await asyncio.sleep(0)
    calls[3].cancel()
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert [reply for number, reply in enumerate(replies) if number != 3] == [b"%d" % n for n in range(10) if n != 3]
    assert await own.call("ECHO", "after") == b"after"


def test_keys_of_one_tag_share_a_slot() -> None:
    state = State("unix:///nowhere")
    assert state.key("a", "b") == "tg:a:b"
    assert state.key("a", "b", tag="team") == "tg:{team}:a:b"


async def test_without_a_server_open_returns_and_calls_fail_at_once(directory: Path) -> None:
    state = State(f"unix://{directory}/none.sock")
    await state.open()
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(StateUnavailable):
            await state.call("PING")
    assert time.monotonic() - began < 50 * state.timeout_s, "no call waited for its deadline"
    assert (state.healthy, state.epoch) == (False, "")
    await state.aclose()


async def test_a_server_that_comes_later_is_found(directory: Path) -> None:
    server = EmbeddedServer(directory)
    state = State(server.url)
    epochs: list[str] = []
    state.on_epoch(epochs.append)
    await state.open()
    await asyncio.to_thread(server.start)
    await until(lambda: state.healthy)
    assert epochs == [state.epoch]
    await state.aclose()
    await asyncio.to_thread(server.stop)


async def test_a_frozen_server_counts_as_down_within_the_deadline(server: EmbeddedServer, own: State) -> None:
    assert server.pid
    own.timeout_s = 0.5
    os.kill(server.pid, signal.SIGSTOP)
    began = time.monotonic()
    replies = await asyncio.gather(*(own.call("PING") for _ in range(50)), return_exceptions=True)
    assert all(isinstance(reply, StateUnavailable) for reply in replies)
    assert time.monotonic() - began < 20 * own.timeout_s, "the fifty waited side by side"
    assert not own.healthy
    failed = own.stats()["failed"]
    with pytest.raises(StateUnavailable):
        await own.call("PING")
    assert own.stats()["failed"] == failed, "the breaker refuses without asking the server"
    os.kill(server.pid, signal.SIGCONT)
    own.timeout_s = 2.0
    await until(lambda: own.healthy)
    assert await own.call("PING") == b"PONG"


async def test_an_idle_connection_to_a_frozen_server_is_noticed_too(server: EmbeddedServer, own: State) -> None:
    assert server.pid
    own.timeout_s = 0.5
    os.kill(server.pid, signal.SIGSTOP)
    await until(lambda: not own.healthy)
    os.kill(server.pid, signal.SIGCONT)
    await until(lambda: own.healthy)


async def test_a_stalled_loop_does_not_count_against_the_server(own: State) -> None:
    call = asyncio.get_running_loop().create_task(own.call("PING"))
    await asyncio.sleep(0)
    time.sleep(own.timeout_s * 1.5)
    assert await call == b"PONG"
    assert own.stats()["connects"] == 1


async def test_a_killed_and_restarted_server_keeps_data_and_epoch(server: EmbeddedServer, own: State) -> None:
    await own.call("SET", own.key("kept"), "yes")
    epoch = own.epoch
    await asyncio.to_thread(server.kill)
    await until(lambda: not own.healthy)
    await asyncio.to_thread(server.start)
    await until(lambda: own.healthy)
    assert await own.call("GET", own.key("kept")) == b"yes"
    assert own.epoch == epoch


async def test_a_wiped_server_gives_a_new_epoch(own: State) -> None:
    epochs: list[str] = []
    own.on_epoch(epochs.append)
    before = own.epoch
    await own.call("FLUSHALL")
    await until(lambda: epochs)
    assert epochs == [own.epoch]
    assert own.epoch not in ("", before)


async def test_two_workers_agree_on_the_epoch_of_a_fresh_server(server: EmbeddedServer) -> None:
    states = [State(server.url) for _ in range(5)]
    await asyncio.gather(*(state.open() for state in states))
    assert len({state.epoch for state in states}) == 1
    await asyncio.gather(*(state.aclose() for state in states))


async def test_a_server_with_a_password_and_databases(serve: Serve) -> None:
    port = await serve("--requirepass", "p@ss")
    state, locked_out = State(f"redis://:p%40ss@127.0.0.1:{port}/3"), State(f"redis://127.0.0.1:{port}")
    await state.open()
    await locked_out.open()
    await until(lambda: state.healthy)
    with pytest.raises(StateUnavailable, match="NOAUTH"):
        await locked_out.call("PING")
    assert b" db=3 " in await state.call("CLIENT", "LIST")
    await state.aclose()
    await locked_out.aclose()


async def test_sentinel_leads_to_the_master_and_to_its_successor(serve: Serve, directory: Path) -> None:
    first, second = await serve(), await serve()
    setup = directory / "sentinel.conf"
    setup.write_text(f"sentinel monitor main 127.0.0.1 {first} 1\n")
    sentinel = await serve(setup=setup)
    state = State(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel}/main")
    await state.open()
    await state.call("SET", state.key("a"), "first")
    to_second = State(f"redis://127.0.0.1:{second}")
    await to_second.open()
    await to_second.call("SET", to_second.key("a"), "second")
    sentinels = State(f"redis://127.0.0.1:{sentinel}", namespace="s")
    transport = await sentinels.dial()
    await transport.exchange(
        (("SENTINEL", "REMOVE", "main"), ("SENTINEL", "MONITOR", "main", "127.0.0.1", second, 1)), 1.0
    )
    await transport.aclose()
    old = await State(f"redis://127.0.0.1:{first}").dial()
    await old.exchange((("REPLICAOF", "127.0.0.1", second),), 1.0)  # as a failover demotes it
    await old.aclose()
    with pytest.raises(StateUnavailable, match="READONLY"):
        await state.call("SET", state.key("b"), "1")
    await until(lambda: state.healthy)
    assert await state.call("GET", state.key("a")) == b"second"
    await state.aclose()
    await to_second.aclose()


async def test_tls_is_spoken_and_certificates_are_checked(directory: Path, serve: Serve) -> None:
    certificate, key = str(directory / "server.pem"), str(directory / "server.key")
    await asyncio.to_thread(make_certificate, certificate, key)
    port = await serve()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, downstream), pump(upstream, writer))

    terminator = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    place = f"rediss://127.0.0.1:{terminator.sockets[0].getsockname()[1]}"
    trusted, distrusted = State(f"{place}?ssl_ca_certs={certificate}"), State(place)
    await trusted.open()
    await distrusted.open()
    assert await trusted.call("PING") == b"PONG"
    assert not distrusted.healthy
    await trusted.aclose()
    await distrusted.aclose()
    terminator.close()


async def test_a_server_that_speaks_something_else_counts_as_down(directory: Path) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    stranger = await asyncio.start_unix_server(answer, directory / "http.sock")
    state = State(f"unix://{directory}/http.sock")
    await state.open()
    assert not state.healthy
    with pytest.raises(StateUnavailable, match="does not speak the Redis protocol"):
        await state.call("PING")
    await state.aclose()
    stranger.close()


def test_importing_state_imports_no_client_library() -> None:
    code = "import sys, gateway.state.redis.log, gateway.state.redis.embedded; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
