"""Changed requests in sound framing: bodies of every dialect, queries and ids of every other endpoint."""

from __future__ import annotations

from random import Random
from urllib.parse import quote

from tests.fuzz.mutate import SCALARS, SPOILERS, as_json, spoilt, written
from tests.fuzz.seeds import INFERENCE, OTHERS, PASSED
from tests.fuzz.stage import BACKENDS, Stage
from tests.fuzz.wire import Client

VALUES = (
    "",
    "0",
    "-1",
    "1e9",
    "9" * 5000,
    "\u00b2",
    "\u0661",
    "null",
    "NaN",
    "true",
    "9999-12-31T23:59-12:00",
    "0001-01-01",
    "999999d",
    "-1d",
    "1.5h",
    "2026-02-30",
    "now",
    "%00",
    "%",
    "%zz",
    "%ff",
    "..%2f..",
    "' or 1=1 --",
    "a,b,,",
    "[]",
    "😀",
    "team,model,key,day,hour",
    "\u202e",
    "%ed%a0%80",
    "file-" + "a" * 3_000,
    "x" * 20_000,
    "*",
    ";",
    "&&==",
    "1&limit=2",
)
ODD_HEADERS = {
    "x_thriftgate_cache": ("bypass", "only", "refresh", "x"),
    "x_thriftgate_deadline": ("1", "0", "nan", "1e400", "-1s"),
    "x_thriftgate_tags": ("a=b", "=", "a" * 5_000),
    "x_thriftgate_session": ("s", "\xe9", ""),
    "idempotency_key": ("k", "", "é"),
    "accept_encoding": ("gzip", "zstd;q=0.1, br", "*;q=x"),
    "anthropic_version": ("2023-06-01", "x"),
    "content_type": ("text/plain", "application/json; charset=utf-16"),
    "anthropic_beta": ("a,b", ","),
    "x_thriftgate_priority": ("batch", "x"),
    "x_thriftgate_quality": ("95%", "nan", "200%"),
}


def ask_inference(stage: Stage, client: Client, random: Random) -> None:
    """One request to an inference path with a changed body."""
    path, valid = random.choice(INFERENCE)
    body = as_json(random, valid)
    headers = {}
    if random.random() < 0.2:
        name = random.choice(tuple(ODD_HEADERS))
        headers[name] = random.choice(ODD_HEADERS[name])
    answer = client.ask("POST", path, body, **headers)
    stage.answered(path, answer, f"POST {path} {headers} {body[:3000]!r}")


def ask_valid(stage: Stage, client: Client, random: Random) -> None:
    """One unchanged request to an inference path, for one of the backends; the provider's answer may be changed."""
    path, valid = random.choice(INFERENCE)
    name = random.choice(BACKENDS)[0] if path != "/v1/embeddings" and path not in PASSED else "small"
    body = written({**valid, "model": name, "stream": random.random() < 0.5, "seed": random.randrange(10**6)})
    answer = client.ask("POST", path, body, x_thriftgate_cache="bypass")
    stage.answered(path, answer, f"POST {path} {body[:3000]!r}")


def ask_other(stage: Stage, client: Client, random: Random) -> None:
    """One request to another endpoint with a changed id, query or body."""
    method, path, valid = random.choice(OTHERS)
    path = changed_path(random, path)
    body = None if valid is None else as_json(random, valid)
    if body is None and random.random() < 0.1:
        body = random.choice(SPOILERS)
    answer = client.ask(method, path, body)
    stage.answered(path, answer, f"{method} {path[:2000]} {body and body[:3000]!r}")


def changed_path(random: Random, path: str) -> str:
    """`path` with ids and parameters changed; it stays one word of printable characters."""
    path, _, query = path.partition("?")
    steps = path.split("/")
    if len(steps) > 2 and random.random() < 0.5:
        steps[random.randrange(2, len(steps))] = quote(_value(random), safe="%")[:30_000]
    pairs = [pair.split("=") for pair in query.split("&")] if query else []
    if random.random() < 0.2:
        pairs.append([random.choice(("limit", "after", "since", "team", "by", "", "x")), ""])
    if pairs:
        for _ in range(random.randint(1, 2)):
            random.choice(pairs)[1] = quote(_value(random), safe="%&=;")[:30_000]
    if pairs and random.random() < 0.2:
        pairs.append(random.choice(pairs))
    path = "/".join(steps)
    if random.random() < 0.05:
        path = quote(spoilt(random, path.encode()), safe="%/?&=") or "/"
    return path + ("?" + "&".join("=".join(pair) for pair in pairs) if pairs else "")


def _value(random: Random) -> str:
    return random.choice(VALUES) if random.random() < 0.7 else str(random.choice(SCALARS))
