"""`anthropic_beta` of InvokeModel becomes a header of the call, so it can hold nothing that a header cannot hold."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.bedrock_converse.invoke import parse_invoke
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest


def invoke(beta: Any) -> CompletionRequest:
    body = {
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": beta,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "hi"}],
    }
    return parse_invoke(orjson.dumps(body), "req_1", Controls(), {}, model="small", stream=False)


@pytest.mark.parametrize(
    "beta", [["a\r\nx-api-key: b"], ["a\nb"], ["a\0b"], ["ü"], [1], [{}], "a", [""], ["a"] * 65, ["a" * 129]]
)
def test_a_beta_that_no_header_can_hold_is_refused(beta: Any) -> None:
    """Sent on, the broken head would count as a failure of the backend, and five of them would stop it for all."""
    with pytest.raises(BadRequest) as refused:
        invoke(beta)
    assert refused.value.param == "anthropic_beta"


def test_betas_become_the_header_of_the_api() -> None:
    asked = invoke(["interleaved-thinking-2025-05-14", "context-1m-2025-08-07"])
    assert asked.headers[b"anthropic-beta"] == b"interleaved-thinking-2025-05-14,context-1m-2025-08-07"
    assert b"anthropic-beta" not in invoke(None).headers
    assert b"anthropic-beta" not in invoke([]).headers
