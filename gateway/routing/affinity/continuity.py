"""Changes a routing decision according to the earlier requests of the conversation: cached prompts, replicas, tool
loops in progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gateway.domain.backend import Backend
from gateway.domain.protocols import FleetView
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.load import Load
from gateway.domain.routing.route import Prefix, Route
from gateway.domain.tenant import Tenant
from gateway.routing.affinity.replicas import Replica, group_of, order
from gateway.routing.affinity.sessions import LEAST_TOKENS, Sessions, prefix_of
from gateway.routing.candidates import Candidate


class Affinity:
    """The conversations that one worker remembers, and their effect on routes."""

    def __init__(
        self, backends: Sequence[Backend], fleet: FleetView, *, overload: float = 1.25, on_demand: float = 0.2
    ) -> None:
        """`overload`: maximum load of a replica, in multiples of the mean. `on_demand`: share of conversations (0 to 1)
        that use spot machines only as a fallback."""
        self.sessions = Sessions()
        self._fleet, self._overload, self._on_demand = fleet, overload, on_demand
        groups = {backend.name: group_of(backend) for backend in backends}
        sizes = Counter(groups.values())
        self._groups = {name: group for name, group in groups.items() if sizes[group] > 1}

    def prefix(self, request: CompletionRequest, tenant: Tenant, session: str, input_tokens: int) -> Prefix | None:
        """The conversation to which the request belongs; None if the conversation cannot change the route. A short
        prompt without tools cannot change it if no backend has replicas."""
        if input_tokens < LEAST_TOKENS and not self._groups and "tools" not in request.needs:
            return None
        return prefix_of(request, tenant.key.lineage, session)

    def arrange(self, candidates: list[Candidate], prefix: Prefix | None, input_tokens: int) -> list[Candidate]:
        """Sort the replicas in each group of interchangeable backends by the order in which they should be called.
        Returns all candidates. All replicas of a group get the cost of the first one."""
        if prefix is None or not self._groups:
            return candidates
        together: dict[tuple[str, str, str, bool], list[int]] = {}
        for place, each in enumerate(candidates):
            if not each.excluded and (group := self._groups.get(each.backend.name)) is not None:
                # a replica that is paid already is preferred to the others
                prepaid = each.ledger_pico is not None
                together.setdefault((*group, prepaid), []).append(place)
        arranged = list(candidates)
        for places in together.values():
            if len(places) < 2:
                continue
            members = {candidates[place].backend.name: candidates[place] for place in places}
            ranked = order(
                self._replicas([each.backend for each in members.values()]),
                prefix.session,
                input_tokens if prefix.lengths else 0,  # texts to embed have no common prefix
                overload=self._overload,
                on_demand=self._on_demand,
            )
            cost = members[ranked[0].name].cost_pico
            for place, backend in zip(places, ranked, strict=True):
                arranged[place] = members[backend.name]._replace(cost_pico=cost)
        return arranged

    def keep(self, route: Route, prefix: Prefix | None, candidates: Sequence[Candidate]) -> Route:
        """Reorder the backends of `route`, and return the route. A backend whose tool calls are still open comes first;
        backends at their limit of parallel requests come last."""
        route.prefix = prefix
        busy = [each.backend for each in candidates if each.cause == "busy"]
        holder = self.sessions.holder(prefix) if prefix is not None else ""
        if holder in route.above:  # it took over after failures; its tool loop does not justify exceeding the ceiling
            holder = ""
        held = next((each for each in (*route.backends, *busy) if each.name == holder), None) if holder else None
        if held is not None:
            if held is not route.backends[0] or route.asking is not None:
                route.reason = f"{held.name} continues its tool calls; else: {route.reason}"
            route.asking = route.escalate_to = route.what_if = None
            route.strategy, route.escalate_below = "", 0.0
            route.backends = (held, *(each for each in route.backends if each is not held))
        if busy:
            route.backends = (*route.backends, *(each for each in busy if each not in route.backends))
        return route

    def learn(self, record: Record) -> None:
        self.sessions.learn(record)

    def stats(self) -> dict[str, int]:
        return self.sessions.stats()

    def _replicas(self, backends: Sequence[Backend]) -> list[Replica]:
        """The replicas with their loads. If the capacity of one replica is unknown, all capacities count as equal."""
        states = [self._fleet.state(backend) for backend in backends]
        loads = [state.load or Load(float(state.in_flight)) for state in states]
        known = [load.capacity for load in loads if load.capacity is not None]
        capacities = [max(1.0, each) for each in known] if len(known) == len(loads) else [1.0] * len(loads)
        return [
            Replica(backend, load.running + load.waiting, capacity, 1.0 if state.headroom is None else state.headroom)
            for backend, load, capacity, state in zip(backends, loads, capacities, states, strict=True)
        ]
