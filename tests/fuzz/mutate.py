"""Valid things made wrong: by value, where they are JSON, and by byte."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

_DEEP: Any = []
for _ in range(60):
    _DEEP = [_DEEP]
_HUGE = "<huge>"
"""Stands for a number of more digits than Python writes."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, float("nan"), float("inf"), 2**31, 2**63, 2**64, 10**30, _HUGE),
    *("", " ", "x" * 5000, "\ud800", "\0", "\u202e", "\U000e0041", "null", "auto", "data:image/png;base64,AAAA"),
    *("http://127.0.0.1:1/x", "file:///etc/passwd", "../../x", "{{x}}", "%00", "١", "1e999", "-0", "[[", "\r\nx: y"),
    *([], {}, [[]], [{}], {"": ""}, {"type": "text"}, {"type": None}, [None], ["x"], ["x"] * 300, _DEEP),
)
_BYTES = (b"", b"\0", b"\r\n", b"\n", b" ", b"\xff", b'"', b"{", b"}", b"[", b"]", b":", b",", b"%00", b"9" * 30, b"-1")
_NUMBER, _JSON_LINE = re.compile(rb"\d+"), re.compile(rb"(?m)^(data: )?(\{.*\})$")


def mutated(random: Random, value: Any) -> Any:
    """A copy of `value` with one to four places changed."""
    root = {"": copy.deepcopy(value)}
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if places := _places(root):
            _change(random, root, *random.choice(places))
    return root.get("")


def dumped(value: Any) -> bytes:
    """As JSON, and what is no JSON as most programs write it."""
    return json.dumps(value).replace(f'"{_HUGE}"', "9" * 4400).encode()


def spoiled(random: Random, data: bytes) -> bytes:
    """`data` with one to three changes of a few bytes."""
    for _ in range(random.choice((1, 1, 2, 3))):
        data = random.choice(_SPOIL)(random, data)
    return data


def spoiled_json(random: Random, data: bytes) -> bytes:
    """As `spoiled`, or one of the JSON values in it changed: the whole of it, or a line of an event stream."""
    found = list(_JSON_LINE.finditer(data))
    if not found or random.random() < 0.3:
        return spoiled(random, data)
    one = random.choice(found)
    try:
        value = mutated(random, json.loads(one[2]))
    except ValueError:
        return spoiled(random, data)
    return data[: one.start(2)] + dumped(value) + data[one.end(2) :]


def _places(root: Any) -> list[tuple[Any, Any]]:
    found, waiting = [], [root]
    while waiting and len(found) < 2000:
        node = waiting.pop()
        for key, value in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
            found.append((node, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    return found


def _change(random: Random, root: Any, node: Any, key: Any) -> None:
    what = random.randrange(8)
    if what < 4:
        node[key] = copy.deepcopy(random.choice(ODD))
    elif what == 4:
        del node[key]
    elif what == 5:
        other, at = random.choice(_places(root) or [(node, key)])
        node[key] = copy.deepcopy(other[at])
    elif what == 6 and isinstance(node, dict):
        node[str(random.choice(ODD))[:100]] = node.pop(key)
    else:
        node[key] = [copy.deepcopy(node[key]) for _ in range(random.choice((1, 2, 50)))]


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randint(0, len(data))]


def _less(random: Random, data: bytes) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + data[at + random.randint(1, 20) :]


def _more(random: Random, data: bytes) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice((*_BYTES, random.randbytes(4))) + data[at:]


def _twice(random: Random, data: bytes) -> bytes:
    at, length = random.randint(0, len(data)), random.randint(1, 200)
    return data[: at + length] + data[at:]


def _flip(random: Random, data: bytes) -> bytes:
    at = random.randint(0, max(0, len(data) - 1))
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _number(random: Random, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    one = random.choice(found)
    return data[: one.start()] + random.choice((b"0", b"-1", b"1e9", b"9" * 25, b"00")) + data[one.end() :]


_SPOIL: tuple[Callable[[Random, bytes], bytes], ...] = (_cut, _less, _more, _twice, _flip, _number)
