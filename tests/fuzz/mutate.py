"""Random changes to a valid value, its JSON text or bytes. All randomness comes from the `Random` that is passed in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import orjson

DEPTH = 200
"""Levels of a deeply nested value."""
MANY = 300
"""Items of a long list."""


class Text:
    """A string that JSON's writers refuse: it is written as it stands."""

    def __init__(self, literal: str) -> None:
        self.literal = literal


LITERALS = tuple(
    Text(literal)
    for literal in (
        r'"\ud800"',
        r'"\udfff x"',
        r'"\ud83d"',
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "9" * 400,
        "9" * 5000,
        "-0",
        "-0.0",
        "1E+2",
        "1e-400",
        "01",
        "0x10",
        "'a'",
        "undefined",
        r'"\x00"',
        r'"\u0000"',
        '"\t"',
        "",
    )
)
SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    10**30,
    0.5,
    -0.1,
    1e308,
    1e-308,
    "",
    " ",
    "0",
    "null",
    "true",
    "auto",
    "none",
    "user",
    "system",
    "assistant",
    "tool",
    "text",
    "function",
    "\x00",
    "\r\n",
    "\u202e",
    "é",
    "😀",
    "../..",
    "%00",
    "a" * 5_000,
    "{}",
    "[]",
    "data:image/png;base64,AAAA",
    "http://",
    "image_url",
    "input_text",
    "json_schema",
    "$ref",
    "__proto__",
    "\ufeff",
    "-9223372036854775809",
)
CONTAINERS: tuple[Any, ...] = ([], {}, [[]], [None], [{}], {"": None}, {"type": None}, {"type": "text"}, [1, "a", {}])


def nested(random: Random) -> Any:
    """A value in `DEPTH` lists or objects."""
    value: Any = random.choice(SCALARS)
    for _ in range(random.choice((10, DEPTH))):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def anything(random: Random) -> Any:
    """A value of any type."""
    made: Callable[[], Any] = random.choice(
        (
            lambda: random.choice(SCALARS),
            lambda: random.choice(SCALARS),
            lambda: copy.deepcopy(random.choice(CONTAINERS)),
            lambda: random.choice(LITERALS),
            lambda: nested(random),
            lambda: [random.choice(SCALARS)] * random.choice((1, 2, MANY)),
            lambda: random.randint(-(10**6), 10**6),
        )
    )
    return made()


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) inside `value`."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, dict):
            found += [(here, key) for key in here]
            left += here.values()
        elif isinstance(here, list):
            found += [(here, index) for index in range(len(here))]
            left += here
    return found


def mutated(random: Random, value: Any, most: int = 3) -> Any:
    """A copy of `value` with 1 to `most` changes."""
    value = copy.deepcopy(value)
    for _ in range(random.randint(1, most)):
        value = _changed(random, value)
    return value


def _changed(random: Random, value: Any) -> Any:
    spots = places(value)
    if not spots or random.random() < 0.02:
        return anything(random)
    container, key = random.choice(spots)
    match random.choice(("swap", "swap", "delete", "duplicate", "wrap", "graft", "add", "rename", "scalar")):
        case "delete":
            del container[key]
        case "duplicate" if isinstance(container, list):
            container.extend([container[key]] * random.choice((1, 2, MANY)))
        case "wrap":
            container[key] = random.choice(([container[key]], {"a": container[key]}, str(container[key])[:1000]))
        case "graft":
            other, where = random.choice(spots)
            if where in other if isinstance(other, dict) else where < len(other):
                container[key] = copy.deepcopy(other[where])
        case "add" if isinstance(container, dict):
            container[random.choice(("", "x", "type", "role", "content", "id", "stream", "n", "metadata"))] = anything(
                random
            )
        case "rename" if isinstance(container, dict):
            container[random.choice((f"{key}_", str(key).upper(), "", "\ud7ff", "type"))] = container.pop(key)
        case "scalar":
            container[key] = random.choice(SCALARS)
        case _:
            container[key] = anything(random)
    return value


def written(value: Any) -> bytes:
    """JSON text; a `Text` inside as it stands."""
    return orjson.dumps(value, default=_fragment)


def _fragment(value: Any) -> Any:
    return orjson.Fragment(value.literal) if isinstance(value, Text) else str(value)


def as_json(random: Random, value: Any) -> bytes:
    """`value` changed and written, now and then with a duplicate key or spoilt bytes."""
    try:
        text = written(mutated(random, value))
    except (TypeError, RecursionError):  # an integer beyond 64 bits, which orjson does not write
        text = _plainly(mutated(random, value))
    if random.random() < 0.05 and text.startswith(b"{") and len(text) > 2:
        text = text[:-1] + b"," + text[1:]
    return spoilt(random, text) if random.random() < 0.1 else text


def _plainly(value: Any) -> bytes:
    import json  # the only writer of integers without an end

    return json.dumps(value, default=lambda each: each.literal).encode(errors="surrogatepass")


def spoilt(random: Random, data: bytes, most: int = 3) -> bytes:
    """Bytes inserted, removed, repeated or changed."""
    found = bytearray(data)
    for _ in range(random.randint(1, most)):
        at = random.randrange(len(found) + 1)
        until = min(len(found), at + random.choice((1, 1, 2, 8, 64)))
        match random.randrange(5):
            case 0:
                del found[at:until]
            case 1:
                found[at:at] = random.choice(SPOILERS)
            case 2:
                found[at:at] = found[at:until] * random.choice((1, 2, 50))
            case 3:
                found[at:until] = random.choice(SPOILERS)
            case _:
                del found[at:]
    return bytes(found)


SPOILERS = (
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\r\n",
    b"\n",
    b"\r",
    b"\n\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b":",
    b"0",
    b"-1",
    b"9" * 30,
    b"data: ",
    b"event: ",
    b"NaN",
    b"\x0b",
    b";",
    b"chunked",
)
