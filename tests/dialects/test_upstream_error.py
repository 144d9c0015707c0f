"""Refusals of backends, in every shape they are known to have."""

from __future__ import annotations

import orjson
import pytest

from gateway.dialects.answers.upstream_error import broken, find_error
from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_messages.translator import ChatToMessages
from gateway.errors import BackendError
from tests.dialects.samples import golden


@pytest.mark.parametrize(
    ("body", "message", "kind", "code", "param"),
    [
        (
            b'{"error":{"message":"Bad n","type":"invalid_request_error","param":"n","code":"bad"}}',
            *("Bad n", "invalid_request_error", "bad", "n"),
        ),
        (
            b'{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}',
            *("too long", "BadRequestError", "400", None),
        ),
        (
            b'{"type":"error","error":{"type":"not_found_error","message":"model: x"},"request_id":"req_0"}',
            *("model: x", "not_found_error", "backend_refused", None),
        ),
        (b'{"error":"model not found"}', "model not found", "invalid_request_error", "backend_refused", None),
        (b'{"detail":"Not Found"}', "Not Found", "invalid_request_error", "backend_refused", None),
        (
            b'{"detail":[{"loc":["body"],"msg":"field required"}]}',
            *('[{"loc":["body"],"msg":"field required"}]', "invalid_request_error", "backend_refused", None),
        ),
        (
            b'[{"error":{"code":400,"message":"Invalid","status":"INVALID_ARGUMENT"}}]',
            *("Invalid", "invalid_request_error", "400", None),
        ),
        (b'{"error":{"reason":7}}', '{"reason":7}', "invalid_request_error", "backend_refused", None),
        (
            golden("llamacpp_error.json"),
            *("Expected 'content' to be a string or an array", "invalid_request_error", "400", None),
        ),
    ],
)
def test_the_backends_words_reach_the_client(
    body: bytes, message: str, kind: str, code: str, param: str | None
) -> None:
    refused = ChatToChat().refusal(400, body, "small")
    assert (refused.message, refused.kind, refused.code, refused.param) == (message, kind, code, param)
    assert (refused.status, refused.backend, refused.retryable) == (400, "small", False)


@pytest.mark.parametrize("body", [b"<html>nginx</html>", b"", b"\xff\xfe", b"null", b"[]", b'{"ok":false}', b"5"])
def test_garbage_becomes_one_sentence(body: bytes) -> None:
    refused = ChatToChat().refusal(422, body, "small")
    assert refused.status == 422
    assert refused.message == "Backend small refused the request (422) without saying why."


@pytest.mark.parametrize("status", [401, 402, 403, 407])
def test_trouble_with_the_gateways_own_account_is_not_told_as_the_clients(status: int) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: sk-secret","type":"invalid_request_error"}}'
    refused = ChatToChat().refusal(status, body, "small")
    assert (refused.status, refused.code) == (502, "backend_credentials")
    assert "sk-secret" not in refused.message


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("Your input was flagged as harmful.", 403),
        ("This model is not available in your country.", 403),
        ("Content violates usage guidelines. Team: abc, API key ID: xyz, Failed check: SAFETY_CHECK_TYPE_BIO", 403),
        ("The prompt has a token that is not allowed.", 403),
        ("Your API key does not have permission to use the specified resource", 502),
        ("User: arn:aws:iam::1:user/g is not authorized to perform: bedrock:InvokeModel", 502),
        ("The security token included in the request is invalid", 502),
        ("The request signature we calculated does not match", 502),
        ("Project proj_1 does not have access to model m", 502),
        ("Your account was suspended", 502),
    ],
)
def test_a_403_stays_one_unless_it_is_about_the_gateways_own_account(message: str, status: int) -> None:
    refused = ChatToChat().refusal(403, orjson.dumps({"error": {"message": message}}), "small")
    assert refused.status == status
    assert (refused.message == message) == (status == 403)


def test_anthropics_full_window_is_openais_full_window() -> None:
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}'
    refused = ChatToMessages().refusal(400, body, "claude")
    assert (refused.code, refused.message) == ("context_length_exceeded", "prompt is too long: 9 > 8")


def test_a_long_message_is_cut() -> None:
    assert len(ChatToChat().refusal(400, b'{"error":"' + b"x" * 99_999 + b'"}', "b").message) == 2000


@pytest.mark.parametrize("body", [{"choices": [], "error": None}, {"choices": [], "detail": "x"}, {"usage": {}}, 3])
def test_what_is_no_error_is_none(body: object) -> None:
    assert find_error(body) is None


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": 429}, "rate_limit_error", 429),
        ({"code": "rate_limit_exceeded"}, "rate_limit_error", 429),
        ({"type": "overloaded_error"}, "overloaded_error", 503),
        ({"code": 503}, "overloaded_error", 503),
        ({"code": 400}, "api_error", 502),
    ],
)
def test_an_error_inside_a_200_keeps_its_kind(error: dict[str, object], kind: str, status: int) -> None:
    body = {"error": {"message": "busy", **error}}
    failure = broken(find_error(body))
    assert (failure.kind, failure.status) == (kind, status)
    with pytest.raises(BackendError, match="answered 200 with an error: busy") as caught:
        load_reply(orjson.dumps(body))
    assert caught.value.status == status


def test_a_refusal_may_have_only_a_message() -> None:
    refused = ChatToChat().refusal(422, b'{"id":"1","message":"no such tool"}', "cohere")
    assert (refused.status, refused.message) == (422, "no such tool")
    assert find_error({"message": "no error"}) is None, "an answer may have a message too"
