"""Decides with the router which backends would get the calls of a log. Sums the actual costs of the calls, and the
costs that they would have had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gateway.cache.keys import Keys
from gateway.cli.simulation.call import LoggedCall
from gateway.cli.teams.redecide import expected
from gateway.dialects.clients import DIALECTS
from gateway.domain.money.price import Price
from gateway.domain.protocols import ModelPrices
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextEstimate
from gateway.domain.tenant import Tenant
from gateway.domain.units import usd_text
from gateway.errors import BadRequest, GatewayError
from gateway.routing.ceiling import same_model
from gateway.routing.router import Router

METHOD = (
    "Each prompt is graded and routed by the policy as a request for model {model}. Health, load, learned evidence and "
    "budgets are not simulated. Failed calls, and calls of other kinds than chat, are left out.",
    "Answers are taken to be as long as in the log. A moved call costs its tokens at the new model's price; the range "
    "is from a prompt cache as warm as in the log to a cold one.",
    "A repeat is a call without tools whose whole request is equal to an earlier one within the policy's cache "
    "lifetime. Semantic hits, trimming and prompt-cache marks are not counted; `cache replay` and `context replay` "
    "measure them.",
    "Whether a cheaper answer is as good is the router's expectation, not a measurement; `thriftgate compare` measures "
    "it.",
)
KINDS = ("repeat", "moved", "kept", "refused", "unknown")


@dataclass(slots=True)
class Sums:
    """The number of calls and their costs, in pico-dollars: `now`, the actual cost; `low` and `high`, the lowest and
    the highest possible cost in this gateway."""

    calls: int = 0
    now: int = 0
    low: int = 0
    high: int = 0

    def add(self, now: int, low: int, high: int) -> None:
        self.calls, self.now = self.calls + 1, self.now + now
        self.low, self.high = self.low + low, self.high + high

    def as_object(self) -> dict[str, Any]:
        money = {"now_usd": usd_text(self.now), "low_usd": usd_text(self.low), "high_usd": usd_text(self.high)}
        return {"calls": self.calls, **money}


@dataclass(slots=True)
class Simulation:
    """Simulates one policy on one log. `listed`: returns the list price of a model name."""

    router: Router
    prices: ModelPrices
    listed: Callable[[str], Price | None]
    tenant: Tenant
    model: str
    kinds: dict[str, Sums] = field(default_factory=lambda: {kind: Sums() for kind in KINDS})
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(Model in the log, backend) → number of moved calls."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Why calls were not decided → number of calls. The actual cost of these calls counts also as
    their cost in this gateway."""
    unpriced: Counter[str] = field(default_factory=Counter)
    """Model → number of calls without a cost in the log and without a list price. They are in no sum."""
    _keys: Keys = field(default_factory=lambda: Keys("simulation"))
    _answered: dict[bytes, float] = field(default_factory=dict)

    def see(self, call: LoggedCall) -> None:
        """Simulate one call, and add it to the sums. Calls must come oldest first."""
        now = self._cost_in_log(call)
        if now is None:
            self.unpriced[call.model] += 1
            return
        raw = call.body(self.model)
        if raw is None:
            self._stays(now, "the log has no prompt")
            return
        try:
            self._decide(call, raw, now)
        except GatewayError as error:
            if error.status == BadRequest.status:
                self._stays(now, "the log has not the whole request")
            else:
                self.kinds["refused"].add(now, 0, 0)

    def _cost_in_log(self, call: LoggedCall) -> int | None:
        if call.cost_pico is not None:
            return call.cost_pico
        price = self.listed(call.model)
        return None if price is None else price.cost(call.usage)

    def _decide(self, call: LoggedCall, raw: bytes, now: int) -> None:
        request = DIALECTS[call.dialect].parse(raw, call.id, Controls(session=call.session), {})
        if call.hidden_tools:
            request.needs |= {"tools"}
        if call.from_cache or self._repeats(request, call):
            self.kinds["repeat"].add(now, 0, 0)
            return
        tokens = call.usage.all_input
        route = self.router.decide(request, self.tenant, ContextEstimate(tokens, tokens), call.session)
        backend = route.observed or route.backends[0]
        if call.model == backend.name or same_model(call.model, backend.model):
            self.kinds["kept"].add(now, now, now)
            return
        low, high = expected(route, call.usage, self.prices)
        if low is None or high is None:
            self._stays(now, f"backend {backend.name} has no price")
            return
        self.kinds["moved"].add(now, low, high)
        self.moves[call.model, backend.name] += 1

    def _stays(self, now: int, why: str) -> None:
        self.kinds["unknown"].add(now, now, now)
        self.unknown[why] += 1

    def _repeats(self, request: CompletionRequest, call: LoggedCall) -> bool:
        cache = self.tenant.policy.cache
        if not cache.enabled or request.parallel != 1 or "tools" in request.needs:
            return False
        digest = self._keys.digest(request, self.tenant)
        before = self._answered.get(digest)
        if before is not None and call.at - before <= cache.ttl:
            return True
        self._answered[digest] = call.at
        return False

    @property
    def total(self) -> Sums:
        found = Sums()
        for each in self.kinds.values():
            found.calls, found.now = found.calls + each.calls, found.now + each.now
            found.low, found.high = found.low + each.low, found.high + each.high
        return found

    def as_object(self, kind: str) -> dict[str, Any]:
        """The results as JSON values. Money is exact decimal text in USD. `kind`: the kind of log."""
        return {
            "format": kind,
            "team": self.tenant.team,
            "model": self.model,
            **self.total.as_object(),
            "saved_percent": saved_percent(self.total),
            "kinds": {name: sums.as_object() for name, sums in self.kinds.items() if sums.calls},
            "moves": [{"from": old, "to": new, "calls": calls} for (old, new), calls in self.moves.most_common()],
            "unknown": dict(self.unknown),
            "unpriced": dict(self.unpriced),
            "method": self.method,
        }

    @property
    def method(self) -> list[str]:
        return [sentence.replace("{model}", self.model) for sentence in METHOD]


def saved_percent(sums: Sums) -> list[float] | None:
    """The lowest and the highest possible saving in percent; None if nothing was spent."""
    if not sums.now:
        return None
    return [round(100 * (1 - cost / sums.now), 2) for cost in (sums.high, sums.low)]


def simulate(simulation: Simulation, calls: Iterable[LoggedCall], advance: Callable[[], object]) -> Simulation:
    """Simulate all `calls`. `advance`: called after each call."""
    for call in calls:
        simulation.see(call)
        advance()
    return simulation
