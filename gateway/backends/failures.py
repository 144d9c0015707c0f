"""The errors of one request's attempts, and the error that the client gets for them."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.backends.call import BackendCall
from gateway.backends.resilience.breaker import Health
from gateway.errors import AllBackendsFailed, BackendError, BackendFailed, GatewayError, NotSpoken


class Failures:
    """The errors of one request so far.

    `failures`: errors of backends that failed. `misfits`: errors of backends that cannot process this request. `busy`:
    errors of backends without a free slot. `asked`: whether a failed backend was really called.
    """

    failures: tuple[GatewayError, ...] = ()
    misfits: tuple[GatewayError, ...] = ()
    busy: tuple[GatewayError, ...] = ()
    paused: tuple[BackendCall, ...] = ()
    """Backends that may be called again after a pause, because they are only rate-limited."""
    asked = False
    skipped: tuple[Health, ...] = ()
    """Backends that were not called, because their circuit breakers are open."""

    def verdict(self) -> GatewayError:
        """The error to raise. Failures of backends come first, then errors that the client can fix, then overload."""
        if any(not isinstance(failure, NotSpoken) for failure in self.failures):
            return AllBackendsFailed(self.failures, others_may_recover=self._may_recover())
        return next(iter((*self.misfits, *self.busy)), AllBackendsFailed(self.failures or self._known()))

    def _may_recover(self) -> bool:
        """Whether a backend that was not called may answer later without help from the operator."""
        return bool(self.misfits or self.busy) or not all(health.needs_operator for health in self.skipped)

    def _known(self) -> list[BackendError]:
        """The failures that are stored for the backends that were not called. Empty if one of these backends may
        recover without help from the operator."""
        if not all(health.needs_operator for health in self.skipped):
            return []
        return [BackendFailed(health.trouble, backend=health.name).of_operator() for health in self.skipped]


def together(errors: Sequence[GatewayError]) -> GatewayError:
    """Combine the errors of several `first_of` calls into one error."""
    if len(errors) == 1:
        return errors[0]
    failures: list[GatewayError] = []
    for error in errors:
        failures += error.failures if isinstance(error, AllBackendsFailed) else [error]
    return AllBackendsFailed(failures)
