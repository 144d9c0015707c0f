"""The requests of the tour, in order. Each step is a real request, with a sentence that says what to look at."""

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
  auto: {{quality: 90%}}
  {model}: {{candidates: [{candidates}], quality: 90%, confidence: 0.45}}
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
MODEL = "tour"
"""The model name of the tour's requests, which only the tour's policy has. Requests with
this name may use the packaged local model, which requests with `auto` may not. The packaged model answers the tour's
questions correctly (a test checks this). When the gateway lists this name among its models, the policy is active."""


def write_policy(folder: Path, team: str, variable: str, toy: str | None) -> None:
    """Write the policy of the tour's team. `variable`: environment variable with the address of the team's webhook.
    `toy`: name of the packaged local model's backend; None if there is none."""
    candidates = ", ".join([*([toy] if toy else []), "small", "large", "hosted"])
    text = POLICY.format(team=team, variable=variable, model=MODEL, candidates=candidates)
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
    """Whether to kill the local model's process first."""
    chapter: str = ""
    """The title of the chapter that begins with this request."""

    def body(self) -> dict[str, Any]:
        return {
            "model": MODEL if self.team == "tour" else "auto",
            "messages": [*self.before, {"role": "user", "content": self.ask}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
            "stream": self.stream,
        }


STRONG = {"x-thriftgate-tier": "large"}
"""Request headers for open questions. The packaged model is too weak for these, so the tour asks the strong tier."""

_NOTES = tuple(
    {"role": role, "content": text}
    for number in range(1, 9)
    for role, text in (
        ("user", f"Ticket {number}: the invoice of customer {1000 + number} shows the wrong address. " * 6),
        ("assistant", f"Noted: ticket {number}, customer {1000 + number}, wrong address on the invoice. " * 3),
    )
)

STEPS: tuple[Step, ...] = (
    Step(
        "an easy question: the small local model is enough",
        "How many days are in a week?",
        chapter="Easy questions go to the cheap model, repeated ones to the cache",
    ),
    Step("the same question again: answered from the exact cache", "How many days are in a week?"),
    Step("a paraphrase: answered from the semantic cache, verified", "How many days are there in a week?"),
    Step("another easy question", "Which animal says meow?"),
    Step("an easy question, streamed", "What is the opposite of hot?", stream=True),
    Step("the same again: the stored stream is replayed", "What is the opposite of hot?", stream=True),
    Step(
        "a hard question: graded as hard, sent to the strong tier",
        "Let G be a finite group in which every element has order at most 2. Prove that G is abelian, determine all "
        "possible orders of G, and count the subgroups of index 2 when |G| = 16.",
        chapter="Hard and open questions go to the strong model",
    ),
    Step("a how-to question", "How do I turn on the guest network of the office router?", headers=STRONG),
    Step(
        "one word differs and so does the answer: the cache refuses to match",
        "How do I turn off the guest network of the office router?",
        headers=STRONG,
        chapter="The cache matches meaning, and never another team's answers",
    ),
    Step(
        "the same question with a 'please': a verified hit",
        "Please, how do I turn on the guest network of the office router?",
        headers=STRONG,
    ),
    Step(
        "another team asks the same: it never gets this team's answers",
        "How do I turn on the guest network of the office router?",
        team="other",
        headers=STRONG,
    ),
    Step(
        "Spanish: the grader was not trained on it, so the baseline answers",
        "¿Cuántos días tiene una semana?",
        chapter="Other languages, long conversations, unsure answers",
    ),
    Step("Portuguese: the baseline answers, too", "Quantos dias tem uma semana?"),
    Step("the same in lower case and without the question mark: a hit", "quantos dias tem uma semana"),
    Step(
        "a long conversation: old turns beyond the team's limit are dropped",
        "How many tickets are about a wrong address?",
        before=_NOTES,
        headers=STRONG,
    ),
    Step("the small model is unsure of its answer, so the strong one answers", "What color is grass?"),
    Step(
        "an easy question again",
        "What is the first month of the year?",
        chapter="What a request may ask for, and what happens when a model dies",
    ),
    Step(
        "the header x-thriftgate-cache: bypass skips the cache",
        "Which animal says meow?",
        headers={"x-thriftgate-cache": "bypass"},
    ),
    Step("a last easy question", "How many legs does a dog have?", max_tokens=30),
    Step("the local model's process was just killed, and there still is an answer", "What is 2 + 2?", kill_local=True),
)
