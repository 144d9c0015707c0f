"""What is declared: for each part and fault of the matrix, what clients, health, metrics and log must show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TIGHT_USD = 0.008
"""Budget of the team that is to run out of money in the middle of things."""
TEAMS: Mapping[str, str] = {
    "strict": "cache: {enabled: false}\nbudget: {limit_usd: 100, window: day, on_state_loss: refuse}",
    "lenient": "cache: {enabled: false}\nbudget: {limit_usd: 100, window: day, on_state_loss: allow}",
    "free": "cache: {enabled: false}\nlimits: {requests_per_minute: 100000}",
    "cached": "cache: {enabled: true, semantic: {enabled: false}}",
    "tight": f"cache: {{enabled: false}}\nbudget: {{limit_usd: {TIGHT_USD}, window: day, on_state_loss: refuse}}",
}
"""Team → its rules. `tight` is refused sooner or later whatever happens; it must never overrun."""
MEANING = "cache: {enabled: true, semantic: {enabled: true}}"
"""Rules of the cached team where the embedder is to be struck."""
SPENT = "429 insufficient_quota"
CUT = "0 insufficient_quota"
"""A stream that outgrew what was held for it ends with an error event."""
UNWRITTEN = "503 ledger_unavailable"
_PAYING = frozenset({"strict", "lenient", "free", "tight"})


@dataclass(frozen=True, slots=True)
class Expect:
    """What is declared for the time of the fault and after. Shares are of the second half, when it has been noticed."""

    refusals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Team → what it may hear instead of an answer, as "429 code" or "502"."""
    mostly_refused: frozenset[str] = frozenset()
    """Teams of whose requests nine in ten are refused."""
    answered: Mapping[str, float] = field(default_factory=dict)
    """Team with refusals → least share answered all the same."""
    degraded: str = ""
    told: frozenset[str] = frozenset()
    """Teams of whose replies nine in ten say so in x-thriftgate-degraded."""
    served_by: str = ""
    """The backend that nine in ten answers come from."""
    health: tuple[str, str] | None = None
    """Part and the word it shows in /health at some moment."""
    metric: tuple[str, float] | None = None
    """Figures of /metrics (a pattern) that together are above this at some moment, and above what they were before."""
    log: str = ""
    """Words that the log holds afterwards."""
    recovery_s: float = 5.0
    """Longest until every reply is as before."""
    back_to: str = ""
    """The backend that serves again by then."""
    ready: tuple[int, ...] = (200,)
    """Status of /health/ready all the while; 0: no answer within 2 s."""
    asked: bool = True
    """Every team gets to ask in the second half."""


@dataclass(frozen=True, slots=True)
class Cell:
    part: str
    fault: str
    means: str
    expect: Expect
    during_s: float = 8.0
    noticed_s: float = 4.0
    """How long the declared behaviour may take to show, leases run out for example."""

    @property
    def name(self) -> str:
        return f"{self.part}:{self.fault}"


def _state(told: frozenset[str], **more: object) -> Expect:
    return Expect(
        refusals={"strict": (SPENT, CUT)},
        mostly_refused=frozenset({"strict"}),
        degraded="state",
        told=told,
        metric=(r'thriftgate_degraded_requests_total\{part="state"\}', 0),
        **more,  # type: ignore[arg-type]
    )


_LONG: Mapping[str, float] = {"during_s": 20.0, "noticed_s": 15.0}
"""A worker may serve from its leased units until they are used, and at most for 14 s after its last report."""
_AWAY = _state(frozenset({"lenient", "free", "cached", "strict"}), health=("state", "down"))
_KEYS_OLD = (r'thriftgate_room\{figure="age_s",room="keys"\}', 2.0)
_FIRST_DOWN = Expect(
    # near its end a budget has nothing for the dearer one
    refusals={"tight": ("502 all_backends_failed", "429 rate_limit_exceeded")},
    served_by="second",
    health=("backends.first", ""),
    metric=(r'thriftgate_attempts_total\{backend="first",outcome="(failed|interrupted)"\}', 0),
    recovery_s=30.0,
    back_to="first",
)


def _none_left(*refusals: str) -> Expect:
    return Expect(
        refusals=dict.fromkeys((*_PAYING, "cached"), (*refusals, SPENT)),
        mostly_refused=_PAYING - {"tight"},
        answered={"cached": 0.3},
        metric=(r'thriftgate_attempts_total\{backend="second",outcome="(failed|interrupted)"\}', 0),
        recovery_s=30.0,
    )


_DRAIN = "the journal cannot be drained into the ledger"
_NO_WRITING = Expect(
    refusals=dict.fromkeys((*_PAYING, "cached"), (UNWRITTEN, SPENT)),
    mostly_refused=_PAYING - {"tight"},
    answered={"cached": 0.3},
    metric=(r'thriftgate_room\{figure="refusals",room="journal"\}', 0),
    log="the ledger journal cannot be written",
)
_STILL = Expect(degraded="state", ready=(200, 0), asked=False)
"""The workers stand still; then the state has not been heard of for a moment."""
_NO_VECTORS = Expect(
    degraded="embedder",
    told=frozenset({"cached"}),
    metric=(r'thriftgate_degraded_requests_total\{part="embedder"\}', 0),
    recovery_s=15.0,
)

CELLS: tuple[Cell, ...] = (
    Cell("state", "killed", "SIGKILL; comes back empty", _AWAY, **_LONG),
    Cell("state", "frozen", "SIGSTOP; thaws with its data", _AWAY, **_LONG),
    Cell("state", "slow", "0.4 s more each way; the deadline is 0.25 s", _AWAY, **_LONG),
    Cell("state", "full", "maxmemory reached, noeviction", _state(frozenset({"lenient", "free"})), **_LONG),
    Cell("database", "killed", "SIGKILL of PostgreSQL", Expect(log=_DRAIN, metric=_KEYS_OLD)),
    Cell("database", "frozen", "SIGSTOP of all its processes", Expect(metric=_KEYS_OLD)),
    Cell("database", "slow", "1 s more each way", Expect(metric=_KEYS_OLD)),
    Cell("database", "full", "", Expect(log=_DRAIN)),
    Cell("backend", "killed", "SIGKILL of the cheaper of two", _FIRST_DOWN),
    Cell("backend", "frozen", "SIGSTOP", _FIRST_DOWN),
    Cell("backend", "slow", "0.5 s more each way", Expect(served_by="first")),
    Cell("backend", "full", "429, retry-after 3", _FIRST_DOWN),
    Cell("backend", "error", "500 to everything", _FIRST_DOWN),
    Cell("backends", "killed", "SIGKILL of both", _none_left("502", "503")),
    Cell("backends", "frozen", "SIGSTOP of both", _none_left("502", "503", "504"), during_s=10.0),
    Cell("backends", "full", "429 from both", _none_left("429", "503")),
    Cell("embedder", "killed", "its weights are gone; workers are replaced, twice", _NO_VECTORS, during_s=16.0),
    Cell("embedder", "frozen", "no inference returns", _NO_VECTORS),
    Cell("embedder", "slow", "1 s more an inference; the deadline is 0.25 s", _NO_VECTORS),
    Cell("embedder", "full", "every inference raises, as without memory", _NO_VECTORS),
    Cell("disk", "killed", "every access fails (ext4 shutdown); mounted anew", _NO_WRITING),
    Cell("disk", "frozen", "writes wait 2.5 s (fsfreeze), less than the deadline", _STILL, during_s=2.5),
    Cell("disk", "slow", "writes wait up to 0.3 s (fsfreeze in turns)", Expect()),
    Cell("disk", "full", "not a byte left", _NO_WRITING),
)
NOT_POSSIBLE = (
    "disk × SIGSTOP: a disk is no process; frozen is a filesystem that lets writes wait. The journal is written on the "
    "event loop, so a worker waits as long as its disk does.",
)


def chosen(patterns: str) -> list[Cell]:
    """`state`, `disk:full` or several with commas between; empty: all. Raises ValueError for one that there is not."""
    wanted = [pattern for pattern in patterns.split(",") if pattern]
    for pattern in wanted:
        if not any(pattern in (cell.part, cell.fault, cell.name) for cell in CELLS):
            raise ValueError(f"there is no {pattern!r}; give a part, a fault, or part:fault")
    return [cell for cell in CELLS if not wanted or {cell.part, cell.fault, cell.name} & set(wanted)]
