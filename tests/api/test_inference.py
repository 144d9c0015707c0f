"""The endpoint without sockets: what a client is told, and when."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
import pytest

from gateway.errors import GatewayError
from gateway.ledger.reports.report import usage
from tests.api.conftest import Api
from tests.fakes.client import Client
from tests.fakes.litellm_proxy import FORWARDED
from tests.fakes.provider import Fail, Raw, Reply
from tests.support.requests import small_body
from tests.support.waiting import until


async def answered(client: Client) -> Client:
    async with asyncio.timeout(30):
        return await client.run()


async def test_a_plain_answer_has_its_length_and_the_facts_as_headers(api: Api) -> None:
    client = await answered(api.client(small_body()))
    assert (client.status, client.complete) == (200, True)
    assert client.json["choices"][0]["message"]["content"] == api.gateway.provider.last.text_sent
    headers = client.headers
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(client.body)
    assert headers["x-request-id"].startswith("req_")
    assert headers["x-thriftgate-backend"] == "small"
    assert headers["x-thriftgate-model"] == "model-small"
    assert headers["x-thriftgate-cache"] == "off"
    assert float(headers["x-thriftgate-cost-usd"]) > 0
    assert api.overload.stats()["in_flight"] == 0


async def test_a_stream_comes_piece_by_piece_and_ends_once(api: Api) -> None:
    api.gateway.provider.script(Reply(tokens=5, drip_s=0.01))
    client = await answered(api.client(small_body(stream=True)))
    assert client.headers["content-type"].startswith("text/event-stream")
    assert client.headers["x-accel-buffering"] == "no"
    assert "content-length" not in client.headers
    assert client.body.endswith(b"data: [DONE]\n\n")
    assert client.body.count(b"[DONE]") == 1
    assert len(client.messages) > 5


async def test_a_backends_late_goodbye_is_no_hang_up_of_the_client(api: Api) -> None:
    """The server tells of a disconnect once an answer is out; the exits still wait for the backend's last bytes."""
    frame = b'{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    events = b"data: " + frame + b'{"role":"assistant","content":"hi"},"finish_reason":null}]}\n\n'
    events += b"data: " + frame + b'{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%b\r\n" % (len(events), events)
    provider = api.gateway.provider
    provider.script(Raw((head + chunk, 0.05, b"0\r\n\r\n")))
    client = await answered(api.client(small_body(stream=True)))
    assert client.body.endswith(b"[DONE]\n\n")
    (labels,) = api.gateway.telemetry.totals.requests
    assert labels[-1] == "200"
    await answered(api.client(small_body()))
    assert provider.connections == 1, "the connection was not kept"


async def test_hanging_up_midway_cancels_the_backend(api: Api) -> None:
    gateway = api.gateway
    gateway.provider.script(Reply(tokens=400, drip_s=0.01))
    client = api.client(small_body(stream=True))
    serving = client.start()
    await client.until(5)
    await client.hang_up()
    await asyncio.wait_for(serving, 30)
    await until(lambda: gateway.provider.last.hung_up)
    (labels,) = gateway.telemetry.totals.requests
    assert labels[-1] == "499"
    assert api.overload.stats()["in_flight"] == 0
    (row,) = await gateway.rows()
    assert row["outcome"] == "interrupted"


@pytest.mark.parametrize("stream", [True, False])
async def test_hanging_up_before_the_first_byte_cancels_the_backend(api: Api, stream: bool) -> None:
    gateway = api.gateway
    gateway.provider.script(Reply(delay_s=10))
    client = api.client(small_body(stream=stream))
    serving = client.start()
    await until(lambda: gateway.provider.exchanges)
    await client.hang_up()
    await asyncio.wait_for(serving, 30)
    assert client.messages == []
    await until(lambda: gateway.provider.last.hung_up)
    assert gateway.quiet()


async def test_being_cancelled_by_the_server_is_passed_on(api: Api) -> None:
    api.gateway.provider.script(Reply(delay_s=10))
    serving = api.client(small_body()).start()
    await until(lambda: api.gateway.provider.exchanges)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert api.gateway.quiet()
    assert api.overload.stats()["in_flight"] == 0


async def test_an_error_before_the_first_byte_has_a_status(api: Api) -> None:
    api.gateway.provider.script(Fail(500), Fail(500))
    client = await answered(api.client(small_body(stream=True)))
    assert (client.status, client.error["code"]) == (502, "all_backends_failed")
    assert client.headers["content-type"] == "application/json"
    assert client.headers["x-request-id"].startswith("req_")


async def test_an_error_after_the_first_byte_is_an_event_and_no_done_follows(api: Api) -> None:
    api.gateway.provider.script(Reply(tokens=9, drip_s=0.002, cut="rst", after=3))
    client = await answered(api.client(small_body(stream=True)))
    assert (client.status, client.complete) == (200, True)
    assert b"[DONE]" not in client.body
    last = client.body.rstrip(b"\n").split(b"\n\n")[-1]
    error = orjson.loads(last.removeprefix(b"data: "))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], client.headers["x-request-id"] in error["message"]) == ("stream_broken", True)


async def test_the_error_event_of_a_response_continues_the_numbers_of_its_events(api: Api) -> None:
    api.gateway.provider.script(Reply(tokens=9, drip_s=0.002, cut="rst", after=3))
    body = orjson.dumps({"model": "small", "input": "hello there", "stream": True})
    client = await answered(api.client(body, path="/v1/responses"))
    events = [orjson.loads(event.partition(b"data: ")[2]) for event in client.body.rstrip(b"\n").split(b"\n\n")]
    assert events[-1]["type"] == "error"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len(events) > 4


async def test_a_deadline_of_the_callers_own_is_kept(api: Api) -> None:
    api.gateway.provider.script(Reply(delay_s=10), Reply(tokens=400, drip_s=0.01))
    client = await answered(api.client(small_body(), headers={"x-thriftgate-deadline": "0.1"}))
    assert (client.status, client.error["code"]) == (504, "deadline_exceeded")
    client = await answered(api.client(small_body(stream=True), headers={"x-thriftgate-deadline": "200ms"}))
    assert client.status == 200
    assert b"deadline_exceeded" in client.body
    assert b"[DONE]" not in client.body


async def test_what_nobody_expected_is_a_500_that_tells_nothing_but_its_id(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    api.gateway.fleet.call = breaks  # type: ignore[method-assign]
    client = await answered(api.client(small_body()))
    assert (client.status, client.error["code"]) == (500, "internal_error")
    assert client.headers["x-request-id"] in client.error["message"]
    assert b"secret detail" not in client.body
    assert "ZeroDivisionError" in caplog.text


async def test_a_stream_that_cannot_be_encoded_is_refused_before_it_begins(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gateway.runtime.zstd_coding", None)  # as if the library could not be loaded
    headers = {"accept-encoding": "zstd"}
    client = await answered(api.client(small_body(stream=True), headers=headers))
    assert (client.status, client.error["code"]) == (500, "internal_error")
    assert client.complete


async def test_what_nobody_expected_while_parsing_is_a_500_in_shape(api: Api) -> None:
    class Dialect:
        def __getattr__(self, name: str) -> Any:
            from gateway.dialects.openai_chat import dialect as openai_chat

            return getattr(openai_chat, name)

        def parse(self, *_: Any) -> Any:
            raise RecursionError("too deep")

    api.inference.dialect_at = lambda _: Dialect()  # type: ignore[assignment,return-value]
    client = await answered(api.client(small_body()))
    assert (client.status, client.error["code"]) == (500, "internal_error")


async def test_trouble_after_a_whole_answer_is_not_told_to_the_client(api: Api) -> None:
    """Two heads on one response would break the connection."""
    leave = api.gateway.pipeline.limits.admit

    async def admit(*args: Any) -> Any:
        permit = await leave(*args)

        class Sour:
            settle = permit.settle

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                raise GatewayError("too late")

        return Sour()

    api.gateway.pipeline.limits.admit = admit  # type: ignore[method-assign]
    for stream in (True, False):
        client = await answered(api.client(small_body(stream=stream)))
        assert client.complete
        assert b"too late" not in client.body


# -- refused at the door -------------------------------------------------------------------------------------------


async def test_who_did_not_hear_of_the_drain_is_still_served(api: Api) -> None:
    api.drain.draining = True
    assert (await answered(api.client(small_body()))).status == 200


async def test_a_stream_under_way_is_finished_while_draining(api: Api) -> None:
    api.gateway.provider.script(Reply(tokens=10, drip_s=0.01))
    client = api.client(small_body(stream=True))
    serving = client.start()
    await client.until(3)
    api.drain.draining = True
    assert api.overload.stats()["in_flight"] == 1
    await serving
    assert client.body.endswith(b"[DONE]\n\n")


async def test_more_requests_than_the_operator_allows_are_refused(api: Api) -> None:
    for number in range(1998):
        api.overload.enter(f"other{number % 2}", batch=False)
    api.gateway.provider.script(Reply(delay_s=10), Reply(delay_s=10))
    first, second = api.client(small_body()), api.client(small_body())
    serving = [first.start(), second.start()]
    await until(lambda: len(api.gateway.provider.exchanges) == 2)
    third = await answered(api.client(small_body()))
    assert (third.status, third.headers["retry-after"]) in ((503, "1"), (503, "2"))
    await first.hang_up()
    await second.hang_up()
    await asyncio.gather(*serving)
    assert (await answered(api.client(small_body()))).status == 200


async def test_batch_requests_are_refused_first_and_before_their_body_is_read(api: Api) -> None:
    for _ in range(1600):
        api.overload.enter("others", batch=True)
    batch = {"x-thriftgate-priority": "batch"}
    client = await answered(api.client([b'{"model":'], whole=False, headers=batch))  # type: ignore[arg-type]
    assert (client.status, client.error["code"]) == (503, "overloaded")
    assert "interactive" in client.error["message"]
    assert int(client.headers["retry-after"]) >= 1
    assert (await answered(api.client(small_body()))).status == 200


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ({"key": ""}, 401, "invalid_api_key"),
        ({"key": "tg-wrong"}, 401, "invalid_api_key"),
        ({"key": "figures"}, 403, "forbidden"),
        ({"method": "GET"}, 405, "method_not_allowed"),
        ({"headers": {"content-type": "text/plain"}}, 415, "unsupported_media_type"),
        ({"headers": {"content-encoding": "compress"}}, 415, "unsupported_media_type"),
        ({"headers": {"content-encoding": "gzip"}}, 400, "invalid_request"),
        ({"headers": {"idempotency-key": "ü"}}, 400, "invalid_request"),
        ({"body": b"{" + b" " * 10_001}, 413, "request_too_large"),
        ({"body": b"not json"}, 400, "invalid_request"),
        ({"headers": {"x-thriftgate-cache": "maybe"}}, 400, "invalid_request"),
    ],
)
async def test_what_is_refused_at_the_door_is_told_in_shape_and_counted(
    api: Api, more: dict[str, Any], status: int, code: str
) -> None:
    await api.key("figures", "search", "usage")
    client = await answered(api.client(more.pop("body", small_body()), **more))
    assert (client.status, client.error["code"]) == (status, code)
    assert client.headers["x-request-id"].startswith("req_")
    assert api.gateway.telemetry.totals.refused == {(code,): 1}
    assert not api.gateway.telemetry.totals.requests


async def test_a_client_that_leaves_while_it_sends_is_answered_nothing(api: Api) -> None:
    client = api.client([b'{"model":'], whole=False)  # type: ignore[arg-type]
    serving = client.start()
    await asyncio.sleep(0.02)
    await client.hang_up()
    await asyncio.wait_for(serving, 30)
    assert client.messages == []


async def test_a_body_that_never_ends_is_refused_in_time(api: Api) -> None:
    client = await answered(api.client([b'{"model":'], whole=False))  # type: ignore[arg-type]
    assert client.status == 408
    assert "in time" in client.error["message"]


async def test_the_callers_key_is_not_sent_on(api: Api) -> None:
    await answered(api.client(small_body()))
    sent = api.gateway.provider.last
    assert api.secrets["search"].encode() not in sent.body + b"".join(b": ".join(pair) for pair in sent.headers)


async def test_tags_and_session_of_the_caller_are_on_the_ledger(api: Api) -> None:
    headers = {"x-thriftgate-tags": "feature=answers", "x-thriftgate-session": "s-1"}
    await answered(api.client(small_body(), headers=headers))
    (row,) = await api.gateway.rows()
    assert (orjson.loads(row["tags"]), row["session"]) == ({"feature": "answers"}, "s-1")


async def test_a_header_that_the_policy_denies_is_refused_before_anything_is_bought(api: Api) -> None:
    (api.folder / "search.yaml").write_text("team: search\noverrides: denied\nmax_usd_per_request: 0.000001\n")
    await api.policies.reload()
    client = await api.client(small_body("hello"), headers={"x-thriftgate-tier": "large"}).run()
    assert (client.status, client.error["code"]) == (403, "forbidden")
    assert "overrides: denied" in client.error["message"]
    client = await api.client(small_body("hello")).run()
    assert (client.status, client.error["code"]) == (429, "insufficient_quota")
    assert "max_usd_per_request" in client.error["message"]
    assert not api.gateway.provider.exchanges


async def test_a_litellm_proxys_client_is_on_the_ledger_of_the_keys_own_team(api: Api) -> None:
    forged = {"x-litellm-user_api_key_team_id": "chat", "x-litellm-team-id": "chat"}
    await answered(api.client(small_body(), headers={**FORWARDED, **forged}))
    await answered(api.client(small_body(user="eu-1")))
    by_header, by_body = await api.gateway.rows()
    assert (by_header["team"], by_header["session"]) == ("search", "s-1")
    assert orjson.loads(by_header["tags"]) == {"a": "true", "b": "true"}
    assert by_header["end_user"].startswith("eu_")
    assert by_header["end_user"] == by_body["end_user"]
    assert not any(name.startswith(b"x-litellm-") for name, _ in api.gateway.provider.last.headers)


async def test_an_agent_and_its_own_session_are_on_the_ledger(api: Api) -> None:
    agent = {"user-agent": "codex_cli_rs/0.156 (Linux)", "session-id": "run-7"}
    for headers in (agent, {**agent, "x-thriftgate-session": "mine"}):
        await answered(api.client(small_body(), headers=headers))
    rows = await api.gateway.rows()
    assert [(row["agent"], row["session"]) for row in rows] == [("codex", "run-7"), ("codex", "mine")]
    report = await usage(api.gateway.database, by="agent,session")
    assert sorted(line.group for line in report.rows) == [("codex", "mine"), ("codex", "run-7")]
    told = (await api.send(f"/v1/requests/{rows[0]['request_id']}")).json
    assert (told["agent"], told["session"]) == ("codex", "run-7")


@pytest.mark.parametrize(("rounds", "status"), [(9, 200), (10, 400)])
async def test_an_agent_that_turns_in_circles_is_told_so(api: Api, rounds: int, status: int) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "maek"}'}}
    turn = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "not found"}]
    client = await answered(api.client(small_body(messages=[{"role": "user", "content": "go"}, *turn * rounds])))
    assert client.status == status
    assert (client.status == 400) == (b"tool_loop" in client.body)
    assert len(await api.gateway.rows()) == (status == 200)
