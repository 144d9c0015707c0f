"""curl: every path as the vendors' documentation shows it, streams, big and compressed bodies, errors."""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from pathlib import Path

from cases import BASE, EMBEDDER, KEY, MODEL, SPENT_KEY, V1, case, main, token

OPENAI = ["-H", f"Authorization: Bearer {KEY}"]
ANTHROPIC = ["-H", f"x-api-key: {KEY}", "-H", "anthropic-version: 2023-06-01"]


def curl(*arguments: str, body: object = None) -> tuple[int, dict[str, str], str]:
    """Status, headers (lower case) and text."""
    if body is not None:
        arguments = ("-H", "Content-Type: application/json", "-d", json.dumps(body), *arguments)
    with tempfile.NamedTemporaryFile() as head:
        done = subprocess.run(
            ["curl", "-sS", "-N", "-D", head.name, *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        lines = Path(head.name).read_text().replace("\r", "").strip().split("\n\n")[-1].split("\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, done.stdout


def user(text: str, **more: object) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def content(text: str) -> str:
    return json.loads(text)["choices"][0]["message"]["content"]


@case
def chat():
    said = token()
    status, headers, text = curl(f"{V1}/chat/completions", *OPENAI, body=user(f"Say {said}"))
    assert status == 200
    assert headers["x-request-id"]
    assert said in content(text)


@case
def chat_without_v1():
    said = token()
    assert said in content(curl(f"{BASE}/chat/completions", *OPENAI, body=user(f"Say {said}"))[2])


@case
def chat_stream():
    said = token()
    status, headers, text = curl(f"{V1}/chat/completions", *OPENAI, body=user(f"Stream {said}", stream=True))
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert said in text
    assert text.endswith("data: [DONE]\n\n")


@case
def other_key_header():
    said = token()
    assert said in content(curl(f"{V1}/chat/completions", "-H", f"x-api-key: {KEY}", body=user(f"Say {said}"))[2])


@case
def messages():
    said = token()
    status, headers, text = curl(f"{V1}/messages", *ANTHROPIC, body=user(f"Say {said}", max_tokens=500))
    assert status == 200, text
    assert headers["request-id"]
    assert said in json.loads(text)["content"][0]["text"]
    bearer = ["-H", f"Authorization: Bearer {KEY}", "-H", "anthropic-version: 2023-06-01"]
    assert curl(f"{V1}/messages?beta=true", *bearer, body=user(f"Say {said}", max_tokens=500))[0] == 200


@case
def messages_stream():
    said = token()
    body = user(f"Stream {said}", max_tokens=500, stream=True)
    status, _, text = curl(f"{V1}/messages", *ANTHROPIC, body=body)
    assert status == 200
    names = [line.removeprefix("event: ") for line in text.split("\n") if line.startswith("event: ")]
    assert names[0] == "message_start"
    assert names[-1] == "message_stop"
    assert "ping" in names
    assert said in text


@case
def responses():
    said = token()
    status, _, text = curl(f"{V1}/responses", *OPENAI, body={"model": MODEL, "input": f"Say {said}"})
    assert status == 200, text
    assert said in json.loads(text)["output"][-1]["content"][0]["text"]


@case
def responses_stream():
    said = token()
    body = {"model": MODEL, "input": f"Stream {said}", "stream": True}
    _, _, text = curl(f"{V1}/responses", *OPENAI, body=body)
    names = [line.removeprefix("event: ") for line in text.split("\n") if line.startswith("event: ")]
    assert names[0] == "response.created"
    assert names[-1] == "response.completed"
    assert said in text


@case
def embeddings_and_completions():
    said = token()
    _, _, text = curl(f"{V1}/embeddings", *OPENAI, body={"model": EMBEDDER, "input": "abc"})
    assert json.loads(text)["data"][0]["embedding"] == [3, 1, 2, 3]
    _, _, text = curl(f"{V1}/completions", *OPENAI, body={"model": MODEL, "prompt": f"Say {said}"})
    assert said in json.loads(text)["choices"][0]["text"]


@case
def heads():
    assert curl("-I", f"{BASE}/")[0] == 200
    assert curl(f"{BASE}/")[0] == 200
    assert MODEL in curl(f"{V1}/models", *OPENAI)[2]


@case
def big_body():
    """curl waits for `100 Continue` before it sends this one."""
    said = token()
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump(user(f"Say {said}"), file)
        file.write(" " * 3_000_000)
        file.flush()
        status, _, text = curl(
            f"{V1}/chat/completions", *OPENAI, "-H", "Content-Type: application/json", "-H", "Expect: 100-continue",
            "--data-binary", f"@{file.name}",
        )  # fmt: skip
    assert status == 200, text
    assert said in content(text)


@case
def compressed_both_ways():
    said = token()
    with tempfile.NamedTemporaryFile() as file:
        file.write(gzip.compress(json.dumps(user(f"Say {said}")).encode()))
        file.flush()
        status, _, text = curl(
            f"{V1}/chat/completions", *OPENAI, "--compressed", "-H", "Content-Type: application/json",
            "-H", "Content-Encoding: gzip", "-H", "Transfer-Encoding: chunked", "--data-binary", f"@{file.name}",
        )  # fmt: skip
    assert status == 200, text
    assert said in content(text)


@case
def compressed_stream():
    said = token()
    _, _, text = curl(f"{V1}/chat/completions", *OPENAI, "--compressed", body=user(f"Stream {said}", stream=True))
    assert said in text
    assert text.endswith("data: [DONE]\n\n")


@case
def openai_errors():
    def error(*arguments: str, **more: object) -> tuple[int, str]:
        status, _, text = curl(*arguments, **more)
        return status, json.loads(text)["error"]["code"]

    chat = f"{V1}/chat/completions"
    assert error(chat, body=user("hi")) == (401, "invalid_api_key")
    assert error(chat, "-H", "Authorization: Bearer sk-nobody", body=user("hi")) == (401, "invalid_api_key")
    assert error(chat, *OPENAI, body=user("hi", model="nothing-such")) == (404, "model_not_found")
    spent = ["-H", f"Authorization: Bearer {SPENT_KEY}"]
    assert error(chat, *spent, body=user("hi")) == (429, "insufficient_quota")
    assert curl(chat, *OPENAI)[0] == 405
    assert curl(f"{V1}/nowhere", *OPENAI, body={})[0] == 404
    assert curl(chat, *OPENAI, "-H", "Content-Type: application/json", "-d", "{")[0] == 400


@case
def anthropic_errors():
    def error(*arguments: str, **more: object) -> tuple[int, str]:
        status, headers, text = curl(*arguments, **more)
        told = json.loads(text)
        assert told["type"] == "error"
        assert headers["request-id"]
        return status, told["error"]["type"]

    path = f"{V1}/messages"
    assert error(path, body=user("hi", max_tokens=5)) == (401, "authentication_error")
    assert error(path, *ANTHROPIC, body=user("hi", model="nothing-such", max_tokens=5)) == (404, "not_found_error")
    spent = ["-H", f"x-api-key: {SPENT_KEY}"]
    assert error(path, *spent, body=user("hi", max_tokens=5)) == (429, "rate_limit_error")
    assert error(path, *ANTHROPIC, "-H", "Content-Type: application/json", "-d", "{") == (400, "invalid_request_error")


main()
