"""Which real clients there are, what runs each of them, and whom they ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".clients"
"""Where `make test-clients` puts the clients: nothing of it is the gateway's own."""

Team = Literal["off", "on"]


@dataclass(frozen=True)
class Target:
    """Whom a client asks: a team, with its policy, and the model's name in its mouth."""

    team: Team
    model: str
    claude_model: str
    """The same, by a name of Anthropic's that policies give this meaning: some clients know their models by name."""

    def __str__(self) -> str:
        return f"{self.team}-{self.model}"


CHAT_MODEL, CLAUDE_MODEL, RESPONSES_MODEL, EMBEDDER = "gpt-4.1", "claude-sonnet-4-6", "gpt-4.1-mini", "embedder"
TARGETS = (
    Target("off", CHAT_MODEL, "claude-haiku-4-5-20251001"),
    Target("off", CLAUDE_MODEL, CLAUDE_MODEL),
    Target("off", RESPONSES_MODEL, "claude-opus-4-5-20251101"),
    Target("on", "auto", "claude-opus-4-6"),
)
"""Each backend dialect with cache, trimming and routing off; then the gateway with all of it on."""


@dataclass(frozen=True)
class App:
    """A program in `apps/` that runs its cases and reports one JSON line for each."""

    name: str
    file: str
    cases: tuple[str, ...]
    venv: str = "frameworks"

    @property
    def command(self) -> list[str]:
        if self.file.endswith(".mjs"):  # Node finds packages beside the file only
            return ["node", str(INSTALLED / "node" / self.file)]
        return [str(INSTALLED / self.venv / "bin" / "python"), str(HERE / "apps" / self.file)]


def _app(name: str, file: str, cases: str, venv: str = "frameworks") -> App:
    return App(name, file, tuple(cases.split()), venv)


APPS = (
    _app(
        "openai-python",
        "openai_python.py",
        "plain plain_async twice conversation stream stream_usage stream_helper tools tools_streamed tool_forced parse "
        "image responses responses_stream responses_tools responses_parse responses_async embeddings completions "
        "models wrong_key unknown_model spent refused_above broken_stream no_such_path",
        "vendors",
    ),
    _app(
        "anthropic-python",
        "anthropic_python.py",
        "plain plain_async stream stream_helper tools tools_streamed tool_runner parse beta cache_control thinking "
        "image count_tokens models wrong_key unknown_model spent refused_above broken_stream",
        "vendors",
    ),
)
