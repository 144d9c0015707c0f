"""aider edits a file in a little repository, one message, through OpenAI's chat and through Anthropic's messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cases import BASE, CLAUDE_MODEL, KEY, MODEL, V1, case, main, token

AIDER = Path(sys.executable).with_name("aider")
QUIET = (
    "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes",
    "--no-gitignore", "--no-auto-commits", "--no-pretty", "--map-tokens", "0", "--no-detect-urls",
)  # fmt: skip


def edit(model: str, *more: str, **environment: str) -> None:
    said, work = token(), Path.cwd() / token()
    work.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    (work / "hello.txt").write_text("nothing\n")
    done = subprocess.run(
        [
            str(AIDER), *QUIET, *more, "--model", model, "--edit-format", "whole",
            "--message", f"Write {said} [[whole hello.txt]]", "hello.txt",
        ],
        cwd=work, capture_output=True, text=True, timeout=120, check=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **environment},
    )  # fmt: skip
    assert (work / "hello.txt").read_text() == f"{said}\n", done.stdout[-1500:] + done.stderr[-1500:]


@case
def chat():
    edit(f"openai/{MODEL}", OPENAI_API_BASE=V1, OPENAI_API_KEY=KEY)


@case
def chat_plain():
    edit(f"openai/{MODEL}", "--no-stream", OPENAI_API_BASE=V1, OPENAI_API_KEY=KEY)


@case
def messages():
    edit(f"anthropic/{CLAUDE_MODEL}", ANTHROPIC_API_BASE=BASE, ANTHROPIC_API_KEY=KEY)


main()
