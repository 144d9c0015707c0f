"""The questions of the mixed day: from the folders of recorded data, or a small set of our own that is scripted."""

from __future__ import annotations

import gzip
import lzma
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from gateway.context.bill.sessions import Session, read_sessions
from gateway.context.count import family_factor

SETS = {
    "maths": ("zeroeval_gsm", "zeroeval_math_l5"),
    "exams": ("mmlu_pro",),
    "facts": ("routellm_mmlu", "routellm_gsm8k"),
}
"""Pool -> data sets whose prompts have recorded outcomes of the pool's models."""
_WEAK_STRONG = {"w": "mixtral-8x7b", "s": "gpt-4-1106"}
USUAL_TOKENS = 200
DOCUMENT_CHARACTERS = 40_000
EMBEDDED_AT_ONCE, EMBEDDED_CHARACTERS = 64, 1500
_FILLER = "Read the file before you change it and run the tests after each change of the code. "
_FILLER_TOKENS = 17


@dataclass(frozen=True, slots=True)
class Question:
    """One request of the day, without its model."""

    id: str
    pool: str
    messages: Sequence[Mapping[str, Any]] = ()
    output: Mapping[str, int] = field(default_factory=dict)
    """Model -> output tokens. `USUAL_TOKENS` if a model is not in it."""
    quality: Mapping[str, float] = field(default_factory=dict)
    """Model -> recorded quality of its answer, 0..1. Empty: the question is not judged."""
    answers: Mapping[str, str | None] = field(default_factory=dict)
    """Model -> its recorded final answer."""
    equal: str = ""
    """Questions with the same value may get the same answer. Empty: only the question itself."""
    texts: Sequence[str] = ()
    """Texts to embed. Not empty: the request is for vectors."""
    session: str = ""
    turn: int = 0
    at: float | None = None
    """Recorded time of a session's request, in seconds."""
    system: str = ""
    shared: str = ""
    """The beginning of an agent's system prompt, which the provider has in its cache from another session of the same
    account, before the first request."""

    @property
    def meaning(self) -> str:
        return self.equal or self.id


def recorded(folder: Path, pool: str, models: Sequence[str]) -> list[Question]:
    """Questions with recorded outcomes of all `models`. Raises OSError."""
    found = []
    for name in SETS[pool]:
        with gzip.open(folder / f"{name}.dev.jsonl.gz") as lines:
            for line in lines:
                row = orjson.loads(line)
                quality = row.get("q") or {model: row[part] for part, model in _WEAK_STRONG.items()}
                if all(model in quality for model in models):
                    found.append(_question(row, pool, quality, models))
    return found


def _question(row: dict[str, Any], pool: str, quality: Mapping[str, float], models: Sequence[str]) -> Question:
    return Question(
        row["id"],
        pool,
        _asked(row["prompt"]),
        {model: max(1, tokens) for model, tokens in row.get("out_tok", {}).items() if model in models},
        {model: quality[model] for model in models},
        {model: answer for model, answer in row.get("ans", {}).items() if model in models},
        row["prompt"],
    )


def made_up(pool: str, models: Sequence[str], seed: int) -> list[Question]:
    """Sums whose outcomes are drawn: no model was called. The first model is right more often than the others."""
    draw, found = random.Random(f"{seed} {pool}"), []
    for number in range(2000):
        a, b = draw.randrange(10, 10**4), draw.randrange(10, 10**4)
        right = {model: draw.random() < (0.96 if place == 0 else 0.9) for place, model in enumerate(models)}
        found.append(
            Question(
                f"{pool}-{number}",
                pool,
                _asked(f"A shop in {pool} sold {a} pens in May and {b} pens in June. How many pens did it sell?"),
                {model: draw.randrange(60, 240) for model in models},
                {model: float(good) for model, good in right.items()},
                {model: str(a + b if good else a + b + 1 + draw.randrange(9)) for model, good in right.items()},
            )
        )
    return found


def paraphrases(folder: Path | None) -> list[Question]:
    """Questions in Spanish and Portuguese, in pairs. The two of a pair may share an answer only if they are labelled
    as equal. Raises OSError."""
    rows: list[dict[str, Any]] = list(_PAIRS)
    if folder is not None:
        rows = [orjson.loads(line) for name in ("es", "pt") for line in _lines(folder / f"dev_{name}.jsonl")]
    same = _classes((row["a"], row["b"]) for row in rows if row["label"])
    return [
        Question(
            f"{row['id']}-{side}",
            "general",
            _asked(row[side]),
            answers=_scripted(same(row[side])),
            equal=same(row[side]),
        )
        for row in rows
        for side in ("a", "b")
    ]


def _scripted(meaning: str) -> dict[str, str | None]:
    """Answers of the pool `general`, which are drawn: no model was called. The small model agrees in 97 % of the cases,
    so that comparisons of answers have verdicts."""
    draw = random.Random(meaning)
    right, agrees = draw.randrange(1000), draw.random() < 0.97
    return {"gpt-4o-2024-08-06": str(right), "gpt-4o-mini-2024-07-18": str(right if agrees else right + 1000)}


def _classes(pairs: Iterable[tuple[str, str]]) -> Callable[[str], str]:
    """A function that returns the same text for all texts that the pairs connect, and for equal texts."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while (above := parent.get(text, text)) != text:
            text = above
        return text

    for one, other in pairs:
        parent[root(one)] = root(other)
    return root


def documents(texts: Sequence[str]) -> Iterator[Question]:
    """Questions about long documents, six about each: the document comes first and is the same."""
    asked = ("What is it about?", "Which limits are named?", "What must be installed?", "Which options are there?",
             "What is the first step?", "What may go wrong?")  # fmt: skip
    joined = "\n\n".join(texts)
    for start in range(0, max(1, len(joined) - DOCUMENT_CHARACTERS), DOCUMENT_CHARACTERS // 4):
        document = {"role": "system", "content": joined[start : start + DOCUMENT_CHARACTERS]}
        for number, question in enumerate(asked):
            yield Question(f"document-{start}-{number}", "general", (document, *_asked(question)))


def embedded(texts: Sequence[str], seed: int) -> Iterator[Question]:
    """Requests for the vectors of many pieces of text."""
    joined, draw, number = "\n\n".join(texts), random.Random(seed), 0
    while True:
        starts = [draw.randrange(max(1, len(joined) - EMBEDDED_CHARACTERS)) for _ in range(EMBEDDED_AT_ONCE)]
        pieces = tuple(joined[start : start + EMBEDDED_CHARACTERS] for start in starts)
        yield Question(f"embedding-{number}", "vectors", texts=pieces)
        number += 1


def pages(context: Path | None) -> list[str]:
    """Texts of documents: the recorded ones, else this repository's own pages. Raises OSError."""
    if context is not None:
        with lzma.open(context / "docs.jsonl.xz") as lines:
            return [orjson.loads(line)["text"] for line in lines]
    own = sorted((Path(__file__).parent.parent / "docs").rglob("*.md"))
    return [page.read_text(encoding="utf-8") for page in own] or [_FILLER * 4000]


def sessions(context: Path | None) -> list[Session]:
    """Recorded sessions of Claude Code, or three of our own. Raises OSError."""
    if context is not None:
        return [one for one in read_sessions(context / "sessions.jsonl.xz") if one.api == "anthropic"]
    return [_own_session(number) for number in range(3)]


def turns(session: Session, model: str) -> list[Question]:
    """The requests of a session, with the cache marks that Claude Code sets: at the end of the system prompt, and at
    the last block of the two newest messages of the user. The system prompt and the tools, which the recording lacks,
    are replaced by a filler of as many tokens. The part that the provider read from its cache for the first request,
    according to the recording, is shared with other sessions."""
    begun = shared_tokens(session)
    filler, shared = (
        _FILLER * round(tokens / family_factor(model) / _FILLER_TOKENS)
        for tokens in (session.hidden_tokens - begun, begun)
    )
    found = []
    for sent in session.requests():
        messages = _marked(sent.body["messages"])
        output = {model: max(1, sent.output_tokens)}
        name = f"{session.id}-{sent.turn}"
        system = f"You are Claude Code, session {session.id}. {filler}"
        recorded = Question(name, "agents", messages, output, session=session.id, turn=sent.turn, at=sent.at)
        found.append(replace(recorded, system=system, shared=shared))
    return found


def shared_tokens(session: Session) -> int:
    """Tokens that the provider read from its cache for the session's first request, as recorded, so from another
    session of the account."""
    first = next(session.requests(), None)
    reported = first.reported if first is not None else None
    return min(session.hidden_tokens, (reported or {}).get("cache_read", 0))


def _marked(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    marked: list[Mapping[str, Any]] = list(messages)
    newest = [place for place, one in enumerate(marked) if one["role"] == "user"][-2:]
    for place in newest:
        content = marked[place]["content"]
        given = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks: list[dict[str, Any]] = [dict(one) for one in given]
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
        marked[place] = {**marked[place], "content": blocks}
    return marked


def _own_session(number: int) -> Session:
    begin = {"role": "user", "content": f"Mend the totals of ledger {number}."}
    steps: list[dict[str, Any]] = [{"t": 0.0, "append": [begin], "out": 80}]
    for step in range(12):
        call = {"type": "tool_use", "id": f"c{step}", "name": "read", "input": {"path": f"/src/part_{step}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"c{step}", "content": f"{step}: {_FILLER}" * 40}
        append = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        steps.append({"t": float(step), "append": append, "out": 80})
    return Session(f"own-{number}", "", "anthropic", "claude-opus-4-6", 8000, {"turns": steps})


def _asked(prompt: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": prompt},)


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


_PAIRS = (
    {"id": "es-0", "label": 1, "a": "¿Cómo cambio la contraseña de mi cuenta?", "b": "¿Cómo cambio mi contraseña?"},
    {"id": "es-1", "label": 0, "a": "¿Cómo enciendo la alarma?", "b": "¿Cómo apago la alarma?"},
    {"id": "es-2", "label": 0, "a": "¿Cuánto cuesta el plan anual?", "b": "¿Cuánto cuesta el plan mensual?"},
    {"id": "es-3", "label": 1, "a": "Quiero devolver un pedido, ¿qué hago?", "b": "¿Cómo devuelvo un pedido?"},
    {"id": "pt-0", "label": 1, "a": "Como mudo a senha da minha conta?", "b": "Como altero a senha da minha conta?"},
    {"id": "pt-1", "label": 0, "a": "Como ligo o alarme?", "b": "Como desligo o alarme?"},
    {"id": "pt-2", "label": 0, "a": "Qual é o prazo para Lisboa?", "b": "Qual é o prazo para o Porto?"},
    {"id": "pt-3", "label": 1, "a": "Quero cancelar a encomenda.", "b": "Como cancelo a encomenda?"},
)
