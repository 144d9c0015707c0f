"""OpenAI's shapes towards clients, judged by OpenAI's own SDK."""

from __future__ import annotations

import httpx
import openai
import orjson
import pytest

from gateway.dialects.openai_chat.dialect import error_body, error_event
from gateway.errors import (
    AllBackendsFailed,
    BackendRefused,
    BadRequest,
    BudgetExhausted,
    GatewayError,
    InvalidKey,
    StreamBroken,
)


@pytest.mark.parametrize(
    ("error", "inner"),
    [
        (
            BadRequest("n must be 1.", param="n"),
            {"message": "n must be 1.", "type": "invalid_request_error", "param": "n", "code": "invalid_request"},
        ),
        (
            InvalidKey("Unknown key."),
            {"message": "Unknown key.", "type": "authentication_error", "param": None, "code": "invalid_api_key"},
        ),
        (
            BudgetExhausted("Spent."),
            {"message": "Spent.", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"},
        ),
        (
            BackendRefused("Too hot.", status=400, code="range", param="temperature"),
            {"message": "Too hot.", "type": "invalid_request_error", "param": "temperature", "code": "range"},
        ),
        (
            StreamBroken("Cut."),
            {"message": "Cut. (request req_1)", "type": "api_error", "param": None, "code": "stream_broken"},
        ),
    ],
)
def test_an_error_has_openais_exact_shape(error: GatewayError, inner: dict[str, str | None]) -> None:
    assert orjson.loads(error_body(error, "req_1")) == {"error": inner}
    assert error_event(error, "req_1") == b"data: " + error_body(error, "req_1") + b"\n\n"


def test_the_official_client_raises_its_own_error_with_our_words() -> None:
    failure = AllBackendsFailed([])

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(failure.status, content=error_body(failure, "req_1"))

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        client = openai.OpenAI(api_key="k", base_url="http://gateway/v1", http_client=http, max_retries=0)
        with pytest.raises(openai.InternalServerError, match="every backend is resting") as caught:
            client.models.list()
    assert caught.value.code == "all_backends_failed"
