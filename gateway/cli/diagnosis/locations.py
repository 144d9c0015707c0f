"""Notes of `thriftgate check` about the locations of backends. A location follows from the key `location` in
gateway.yaml or from the backend's address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gateway.domain.backend import Backend
from gateway.domain.policy import Policy
from gateway.domain.routing.whereabouts import private, providers_own


def notes(backends: Sequence[Backend], policies: Sequence[Policy], place: Callable[[int], str]) -> list[str]:
    """A sentence about each backend whose location is surprising: its address or other keys suggest the other location.
    `place`: number of a backend → file and line of its entry, as the beginning of a sentence."""
    closed = sorted(policy.team for policy in policies if policy.data.hosted == "forbidden")
    return [place(number) + note for number, backend in enumerate(backends) for note in _of(backend, closed)]


def _of(backend: Backend, closed: Sequence[str]) -> Iterator[str]:
    name = f"backends.{backend.name}"
    if backend.location == "local" and backend.hosted:
        yield f"{name}: location: local is not followed: {backend.why_hosted}."
    elif backend.location == "local" and not private(backend.base_url):
        yield f"{name}: location: local, at an address that is not private; teams with data.hosted: forbidden reach it."
    elif backend.location == "hosted" and private(backend.base_url):
        yield f"{name}: location: hosted, at a private address; teams with data.hosted: forbidden do not reach it."
    elif backend.tier == "hosted" and backend.hosted and backend.location is None and private(backend.base_url):
        yield f"{name}: counts as hosted by its tier though its address is private; location: local would change that."
    elif backend.strength and backend.hosted and backend.location is None and not providers_own(backend.base_url):
        yield (
            f"{name}: policies select it by hosted, whatever its strength, since {backend.why_hosted}; location: local "
            "says that the machine is your own."
        )
    before = backend.tier == "hosted" or backend.location == "hosted"
    if before == backend.hosted or not closed:
        return
    rule = f"teams under data.hosted: forbidden ({', '.join(closed)})"
    if backend.hosted:
        remedy = "" if providers_own(backend.base_url) else "; location: local says that the machine is your own"
        yield f"{name}: counts as hosted, since {backend.why_hosted}: {rule} do not reach it{remedy}."
    else:
        yield f"{name}: counts as local: {rule} reach it; location: hosted prevents that."
