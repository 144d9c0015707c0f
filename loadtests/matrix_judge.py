"""Whether what was seen is what is declared; values in, complaints out."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.domain.units import PICO_PER_USD
from loadtests.matrix_cells import CUT, SPENT, Expect
from loadtests.matrix_load import Look, Sample

GRACE_S = 1.0
"""Beyond the deadline, for the way there and back."""
WARM_S = 1.5
MOST = 0.9
FEW = 0.02
"""Share of replies that may be degraded for no fault of ours: a machine under load lets the state look slow."""
RECALLED = ("exact", "semantic", "join")


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds since the load began."""

    struck: float
    noticed: float
    """From here on the declared behaviour is asked for."""
    mended: float
    ended: float


class Row(NamedTuple):
    """What the ledger has of one attempt."""

    request_id: str
    team: str
    attempt: int
    backend: str
    outcome: str
    input_tokens: int
    output_tokens: int
    estimated: bool
    cost_pico: int | None


def reply_of(sample: Sample) -> str:
    """`429 insufficient_quota`, `0 hung`, `200`."""
    return f"{sample.status} {sample.code}".rstrip()


def usual(sample: Sample) -> bool:
    """As if nothing had happened; the tight team may have no money left."""
    spent = sample.team == "tight" and reply_of(sample) in (SPENT, CUT)
    return (sample.answered or spent) and not sample.degraded


def allowed(sample: Sample, expect: Expect) -> bool:
    words = (*expect.refusals.get(sample.team, ()), *((SPENT, CUT) if sample.team == "tight" else ()))
    said = reply_of(sample)
    return sample.answered or any(said == each or said.startswith(f"{each} ") for each in words)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def complaints(
    expect: Expect, phases: Phases, samples: Sequence[Sample], looks: Sequence[Look], deadline_s: float
) -> list[str]:
    """Everything that is not as declared, but for money."""
    during = [sample for sample in samples if phases.struck <= sample.at < phases.mended]
    noticed = [sample for sample in during if sample.at >= phases.noticed]
    return [
        *_before([sample for sample in samples if WARM_S <= sample.at < phases.struck - deadline_s / 2]),
        *_refusals(expect, during),
        *_hung(samples, deadline_s),
        *_refused([sample for sample in noticed if sample.at + sample.took_s < phases.mended], expect.mostly_refused),
        *_shares(expect, noticed),
        *_header(expect, during, noticed),
        *_recovery(expect, phases, samples),
        *_looks(expect, phases, looks),
    ]


def _before(samples: Sequence[Sample]) -> list[str]:
    odd = Counter(f"{sample.team} {reply_of(sample)} {sample.degraded}" for sample in samples if not usual(sample))
    slow = all(sample.answered for sample in samples if not usual(sample)) and odd.total() <= FEW * len(samples)
    return [f"before the fault: {odd.most_common(3)}"] if odd and not slow else []


def _refusals(expect: Expect, during: Sequence[Sample]) -> list[str]:
    odd = Counter(f"{sample.team} {reply_of(sample)}" for sample in during if not allowed(sample, expect))
    return [f"not declared: {count} × {what}" for what, count in odd.most_common(4)]


def _hung(samples: Sequence[Sample], deadline_s: float) -> list[str]:
    longest = longest_s(samples)
    return [f"a request took {longest:.1f} s"] if longest > deadline_s + GRACE_S else []


def longest_s(samples: Iterable[Sample]) -> float:
    return max((sample.took_s for sample in samples), default=0.0)


def _refused(ended: Sequence[Sample], teams: Iterable[str]) -> list[str]:
    """`ended`: requests that ended before the mending; one that still waits then may be answered after all."""
    found = []
    for team in sorted(teams):
        answered = [sample.answered for sample in ended if sample.team == team]
        if (share := _share(sum(answered), len(answered))) > 1 - MOST:
            found.append(f"{team} should be refused, {share:.0%} was answered")
    return found


def _shares(expect: Expect, noticed: Sequence[Sample]) -> list[str]:
    total, answered, second = Counter[str](), Counter[str](), 0
    for sample in noticed:
        total[sample.team] += 1
        answered[sample.team] += sample.answered
        second += sample.answered and sample.backend == expect.served_by
    teams = ("strict", "lenient", "free", "cached") if expect.asked else ()
    found = [f"no request of {team} was seen" for team in teams if not total[team]]
    for team, least in expect.answered.items():
        if (share := _share(answered[team], total[team])) < least:
            found.append(f"{team} should be answered at {least:.0%}, was at {share:.0%}")
    if expect.served_by:
        called = sum(sample.answered and sample.cache not in RECALLED for sample in noticed)
        if (share := _share(second, called)) < MOST:
            found.append(f"{expect.served_by} should serve, gave {share:.0%} of the answers")
    return found


def _header(expect: Expect, during: Sequence[Sample], noticed: Sequence[Sample]) -> list[str]:
    found = []
    other = Counter(sample.degraded for sample in during if sample.degraded not in ("", expect.degraded))
    if other.total() > FEW * len(during):
        found.append(f"x-thriftgate-degraded says {other.most_common(2)}")
    for team in sorted(expect.told):
        replies = [sample for sample in noticed if sample.team == team and sample.cache not in RECALLED]
        told = sum(sample.degraded == expect.degraded for sample in replies)
        if (share := _share(told, len(replies))) < MOST:
            found.append(f"{share:.0%} of {team}'s replies say degraded: {expect.degraded}")
    return found


def recovery_s(expect: Expect, phases: Phases, samples: Sequence[Sample]) -> float:
    """Until the last request that was not as usual began, counted from the mending; 0: none was asked after it."""
    last = phases.mended
    for sample in samples:
        elsewhere = expect.back_to and sample.answered and sample.backend not in ("", expect.back_to)
        if sample.at >= phases.mended and (not usual(sample) or elsewhere):
            last = max(last, sample.at)
    return last - phases.mended


def _recovery(expect: Expect, phases: Phases, samples: Sequence[Sample]) -> list[str]:
    found = []
    if not any(sample.at >= phases.mended for sample in samples):
        return ["nothing was asked after the mending"]
    if (took := recovery_s(expect, phases, samples)) > expect.recovery_s:
        late = Counter(
            f"{sample.team} {reply_of(sample)} {sample.degraded}"
            for sample in samples
            if sample.at > phases.mended + expect.recovery_s and not usual(sample)
        )
        found.append(f"not as before after {took:.1f} s: {late.most_common(2)}")
    return found


def _looks(expect: Expect, phases: Phases, looks: Sequence[Look]) -> list[str]:
    during = [look for look in looks if phases.struck <= look.at < phases.mended]
    later = [look for look in looks if look.at >= phases.struck]
    found = []
    odd = Counter(look.ready for look in during if look.ready not in expect.ready)
    if odd:
        found.append(f"/health/ready said {dict(odd)} of {len(during)}")
    if expect.health:
        part, word = expect.health
        if not any(_shows(look.parts, part, word) for look in during):
            found.append(f"/health never showed {part} {word or 'in trouble'}")
    if expect.metric:
        names, above = expect.metric
        before = max((_figure(look, names) for look in looks if look.at < phases.struck), default=0.0)
        if max((_figure(look, names) for look in later), default=0.0) <= max(above, before):
            found.append(f"/metrics: {names} never rose above {max(above, before):g}")
    return found


def _figure(look: Look, names: str) -> float:
    return sum(value for name, value in look.metrics.items() if re.fullmatch(names, name))


def _shows(parts: Mapping[str, object], part: str, word: str) -> bool:
    """Whether /health shows `part` with `word`; without one, anything but ok will do."""
    shown: object = parts
    for name in part.split("."):
        shown = shown.get(name) if isinstance(shown, Mapping) else None
    return shown is not None and (shown == word if word else shown != "ok")


def money_complaints(
    samples: Sequence[Sample], rows: Sequence[Row], limits_usd: Mapping[str, float], sent: Mapping[str, tuple[int, int]]
) -> list[str]:
    """`limits_usd`: team → hard budget; `sent`: backend → (whole answers, their output tokens), where it can tell."""
    of: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of[row.request_id].append(row)
    wrong = Counter[str]()
    for sample in samples:
        if sample.answered and (what := _unlike(sample, of[sample.request_id])):
            wrong[what] += 1
    found = [f"{count} answers: {what}" for what, count in wrong.items()]
    for team, limit in limits_usd.items():
        spent = sum(row.cost_pico or 0 for row in rows if row.team == team)
        if spent > limit * PICO_PER_USD:
            found.append(f"{team} spent {spent / PICO_PER_USD:.6f} USD of {limit}")
    for backend, (answers, tokens) in sent.items():
        ok = [row for row in rows if row.backend == backend and row.outcome == "ok"]
        if len(ok) > answers or sum(row.output_tokens for row in ok) > tokens:
            found.append(f"{backend} sent {answers} answers, the ledger has {len(ok)}")
        if len(ok) + sum(row.backend == backend and row.outcome != "ok" for row in rows) < answers:
            found.append(f"{backend} sent {answers} answers, not all are on the ledger")
    return found


def _unlike(sample: Sample, rows: Sequence[Row]) -> str:
    served = [row for row in rows if row.outcome == "ok"]
    if len(served) != 1:
        return f"{len(served)} rows"
    row = served[0]
    if sample.cache in RECALLED:
        return "a cache hit that cost" if row.cost_pico else ""
    if (row.input_tokens, row.output_tokens) != sample.tokens or row.estimated:
        return f"tokens {row.input_tokens}+{row.output_tokens}, the client saw {sample.tokens}"
    return ""
