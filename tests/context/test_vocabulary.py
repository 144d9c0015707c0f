from __future__ import annotations

import subprocess
import sys
from hashlib import sha1
from importlib.resources import files
from pathlib import Path

import orjson
import pytest

from gateway.context import vocabulary

SAMPLES = [
    "Hello world! It's 12345678 o'clock\n\n  isn't it?\t",
    "¿Cuánto cuesta el café de mañana? Não há açúcar.",
    "HTTPServer camelCase snake_case 漢字かな交じり文 Привет 🙂🙂",
    "<|endoftext|> is only text here   \r\n\r\n   /path/to//file  ",
    " " * 300 + "x",
]


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_a_packaged_vocabulary_counts_as_tiktokens_own_does(name: vocabulary.EncodingName, tmp_path: Path) -> None:
    address = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    packaged = (files("gateway.context") / "data" / f"{name}.tiktoken").read_bytes()
    (tmp_path / sha1(address.encode()).hexdigest()).write_bytes(packaged)
    script = (
        "import json, sys, tiktoken\n"
        f"encoding = tiktoken.get_encoding({name!r})\n"
        "print(json.dumps([encoding.encode_ordinary(text) for text in json.loads(sys.argv[1])]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, orjson.dumps(SAMPLES).decode()],
        env={"TIKTOKEN_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    encoding = vocabulary.load(name)
    assert [encoding.encode_ordinary(text) for text in SAMPLES] == orjson.loads(done.stdout)


def test_a_million_spaces_are_counted_without_a_crash() -> None:
    encoding = vocabulary.load("cl100k_base")
    assert vocabulary.count(encoding, " " * 1_000_000) > 0


def test_cutting_long_text_into_pieces_hardly_changes_the_count() -> None:
    encoding = vocabulary.load("cl100k_base")
    text = "The quick brown fox jumps over the lazy dog. " * 3000
    exact = len(encoding.encode_ordinary(text))
    assert 0 <= vocabulary.count(encoding, text) - exact <= len(text) // 20_000 + 1
