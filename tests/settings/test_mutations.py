"""Random mistakes in valid files: nearly all are reported with their line and a remedy, in plain words."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.domain.policy import Policy
from gateway.policy.load import load_policies
from gateway.settings.files import ConfigError, load
from gateway.settings.gateway import Ceilings, GatewayConfig

POLICY = """\
team: search
organisation: acme
mode: route
rollout: 80%
models:
  auto:
    candidates: [small, large]
    quality: 95%
    baseline: large
  gpt-4o: auto
cache:
  scope: team
  ttl: 24h
  semantic:
    enabled: true
    max_error: 1%
context:
  max_input_tokens: 12000
budget:
  limit_usd: 500
  period: month
  timezone: Europe/Madrid
  alerts: [50%, 80%, forecast]
  notify:
    - webhook: env:SEARCH_ALERT_URL
  on_exhausted: free_only
limits:
  requests_per_minute: 600
  concurrent: 64
data:
  hosted: allowed
  regions: [eu, us]
"""
GATEWAY = """\
listen:
  host: 127.0.0.1
  port: 8080
ceilings:
  limit_usd: 5000
  cache_scope: organisation
requests:
  deadline: 600s
  max_body_bytes: 20MiB
shutdown:
  grace_period: 30s
telemetry:
  sample: 5%
backends:
  - name: small
    kind: openai
    base_url: http://127.0.0.1:9001/v1
    model: qwen2.5-7b
    strength: small
    context_window: 32768
    price:
      machine_hour_usd: 2.10
  - name: large
    kind: openai
    base_url: http://127.0.0.1:9002/v1
    model: llama-70b
    strength: large
    capabilities: [tools, json_schema]
    price:
      input: 0.15
      output: 0.60
"""
Lines = list[str]


def typo(rng: random.Random, line: str) -> str:
    """Two letters of the key are exchanged, one is left out, or one is doubled."""
    key = re.search(r"[a-z_]{4,}(?=:)", line)
    if key is None:
        return line
    at = rng.randrange(key.start(), key.end() - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return line[:at] + line[at + 1] + line[at] + line[at + 2 :]
    return line[:at] + line[at + 1 :] if kind == 1 else line[:at] + line[at] + line[at:]


def wrong_value(rng: random.Random, line: str) -> str:
    """A value of another type, unit or range."""
    key, colon, value = line.partition(": ")
    others = ["-5", "[1, 2]", "{a: 1}", "nonsense", "12 parsecs", "''", "null", "yes", "99999999999999999999", "1.5.2"]
    return f"{key}{colon}{rng.choice(others)}" if value else line


def lost_colon(rng: random.Random, line: str) -> str:
    return line.replace(": ", " ", 1)


def no_space(rng: random.Random, line: str) -> str:
    return line.replace(": ", ":", 1)


def indent(rng: random.Random, line: str) -> str:
    return rng.choice([" " + line, "   " + line, line[1:] if line.startswith("  ") else " " + line])


def tab(rng: random.Random, line: str) -> str:
    return "\t" + line.lstrip()


def open_quote(rng: random.Random, line: str) -> str:
    key, colon, value = line.partition(": ")
    return f'{key}{colon}"{value}' if value else line


def open_bracket(rng: random.Random, line: str) -> str:
    return line.replace("]", "", 1) if "]" in line else line.replace(": ", ": [", 1)


def twice(rng: random.Random, line: str) -> str:
    return f"{line}\n{line}"


MISTAKES: list[Callable[[random.Random, str], str]] = [
    typo, typo, typo, wrong_value, wrong_value, wrong_value, lost_colon, no_space, indent, tab, open_quote,
    open_bracket, twice,
]  # fmt: skip
REMEDY = re.compile(
    r"must|remove|add\b|correct|did you mean|use\b|keep|write|give|align|quote|indent|lower|narrow|there are|there is"
)
PYDANTIC = re.compile(r"[Ii]nput should|validation error|Value error|type=|Extra inputs|valid (integer|string|boolean)")


def problems_of(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    try:
        if path.name == "gateway.yaml":
            load(path, GatewayConfig)
        else:
            load_policies([path.parent], Ceilings())
    except ConfigError as error:
        return list(error.problems)
    return []


def mutations(rng: random.Random, count: int, folder: Path) -> list[tuple[int, str, list[str]]]:
    """(Line, mistake, problems) of so many mutations that make a file invalid."""
    found: list[tuple[int, str, list[str]]] = []
    files = {folder / "gateway.yaml": GATEWAY, folder / "policies" / "search.yaml": POLICY}
    (folder / "policies").mkdir()
    while len(found) < count:
        path, text = rng.choice(list(files.items()))
        lines = text.splitlines()
        number, mistake = rng.randrange(len(lines)), rng.choice(MISTAKES)
        lines[number] = mistake(rng, lines[number])
        if problems := problems_of(path, "\n".join(lines) + "\n"):
            found.append((number + 1, f"{mistake.__name__}: {lines[number]!r}", problems))
    return found


def is_helpful(line: int, problem: str) -> bool:
    """Whether a problem has a line near the mistake, and a remedy."""
    found = re.match(r"\S+\.yaml:(\d+): (.*)", problem)
    return found is not None and abs(int(found[1]) - line) <= 1 and bool(REMEDY.search(found[2]))


def test_the_files_are_valid_before(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    assert problems_of(tmp_path / "gateway.yaml", GATEWAY) == []
    assert problems_of(tmp_path / "policies" / "search.yaml", POLICY) == []
    assert Policy.model_fields


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_of_100_random_mistakes_95_are_told_with_line_and_remedy(tmp_path: Path, seed: int) -> None:
    found = mutations(random.Random(seed), 100, tmp_path)
    helpless = [each for each in found if not any(is_helpful(each[0], problem) for problem in each[2])]
    assert len(helpless) <= 5, "\n".join(f"{line} {what} -> {problems}" for line, what, problems in helpless)
    assert not [problem for *_, problems in found for problem in problems if PYDANTIC.search(problem)]
