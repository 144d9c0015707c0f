from __future__ import annotations

import orjson

from gateway.batches.forms import FORMS
from gateway.errors import BadRequest
from tests.batches.conftest import URL

FORM = FORMS[URL]


def test_results_are_written_as_openai_writes_them() -> None:
    assert orjson.loads(FORM.answered("a", 200, "req_1", b'{\n"x": 1}')) == {
        "id": "batch_req_1", "custom_id": "a", "error": None,
        "response": {"status_code": 200, "request_id": "req_1", "body": {"x": 1}},
    }  # fmt: skip
    refused = orjson.loads(FORM.refused("a", "req_1", BadRequest("no", param="x")))
    assert refused["response"]["status_code"] == 400
    assert refused["response"]["body"]["error"]["param"] == "x"
    unanswered = orjson.loads(FORM.unanswered("a", "9_3", "expired"))
    assert unanswered["id"] == "batch_req_9_3"
    assert unanswered["response"] is None
    assert unanswered["error"]["code"] == "batch_expired"
