"""What the tour asks, in order: each step is a real request and one sentence on what to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Message = dict[str, Any]

POLICY = """\
# Written by `thriftgate serve --demo` or `thriftgate demo`: the rules of the tour's own team.
team: {team}
organisation: tour
models:
  auto: {{quality: 90%, confidence: 0.45}}
  {marker}: auto
cache: {{scope: team, ttl: 1h, semantic: {{enabled: true, max_error: 1%}}}}
context: {{max_input_tokens: 600}}
budget:
  limit_usd: 0.05
  period: day
  alerts: [0.1%, 50%, 80%, 100%]
  notify: [{{webhook: env:{variable}}}]
  on_exhausted: free_only
limits: {{requests_per_minute: 120, concurrent: 8}}
"""
MARKER = "tour-is-ready"
"""A model name that only the tour's policy knows: once it is listed, the policy is in force."""


def write_policy(folder: Path, team: str, variable: str) -> None:
    """The rules of the tour's team; `variable` names the environment variable that holds its webhook."""
    text = POLICY.format(team=team, variable=variable, marker=MARKER)
    (folder / f"{team}.yaml").write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Step:
    """One request of the tour."""

    look: str
    ask: str
    before: tuple[Message, ...] = ()
    """Earlier turns of the conversation."""
    team: Literal["tour", "other"] = "tour"
    stream: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    max_tokens: int = 40
    kill_local: bool = False
    """End the local model's process first."""

    def body(self) -> dict[str, Any]:
        return {
            "model": "auto",
            "messages": [*self.before, {"role": "user", "content": self.ask}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
            "stream": self.stream,
        }


STRONG = {"x-thriftgate-tier": "large"}
"""Open questions: the packaged model is too weak for them, so the tour does not ask it."""

_NOTES = tuple(
    {"role": role, "content": text}
    for number in range(1, 9)
    for role, text in (
        ("user", f"Ticket {number}: the invoice of customer {1000 + number} shows the wrong address. " * 6),
        ("assistant", f"Noted: ticket {number}, customer {1000 + number}, wrong address on the invoice. " * 3),
    )
)

STEPS: tuple[Step, ...] = (
    Step("an easy question: the small local model is enough", "How many days are in a week?"),
    Step("the same again: answered from the exact cache", "How many days are in a week?"),
    Step("a paraphrase: answered from the semantic cache, verified", "How many days are there in a week?"),
    Step("another easy one", "Which animal says meow?"),
    Step("and another, streamed", "What is the opposite of hot?", stream=True),
    Step("the stream was stored: replayed as a stream", "What is the opposite of hot?", stream=True),
    Step(
        "a hard one: graded as such, sent to the strong tier",
        "Let G be a finite group in which every element has order at most 2. Prove that G is abelian, determine all "
        "possible orders of G, and count the subgroups of index 2 when |G| = 16.",
    ),
    Step("a how-to", "How do I turn on the guest network of the office router?", headers=STRONG),
    Step(
        "one word differs and so does the answer: the cache refuses to match",
        "How do I turn off the guest network of the office router?",
        headers=STRONG,
    ),
    Step(
        "said politely it is the same question: a verified hit",
        "Please, how do I turn on the guest network of the office router?",
        headers=STRONG,
    ),
    Step(
        "another team asks the same: it never sees this team's answers",
        "How do I turn on the guest network of the office router?",
        team="other",
        headers=STRONG,
    ),
    Step("Spanish: outside what the grader was trained on, so the reference serves", "¿Cuántos días tiene una semana?"),
    Step("Portuguese: likewise", "Quantos dias tem uma semana?"),
    Step("the same in Portuguese, lower case and without the mark: a hit", "quantos dias tem uma semana"),
    Step(
        "a long conversation: old turns that do not fit the team's limit stay behind",
        "How many tickets are about a wrong address?",
        before=_NOTES,
        headers=STRONG,
    ),
    Step("the small model is unsure of its answer: the strong one answers instead", "What color is grass?"),
    Step("an easy one again", "What is the first month of the year?"),
    Step("bypass on request: x-thriftgate-cache", "Which animal says meow?", headers={"x-thriftgate-cache": "bypass"}),
    Step("and the last easy one", "How many legs does a dog have?", max_tokens=30),
    Step("the local model's process was just killed: the answer still comes", "What is 2 + 2?", kill_local=True),
)
