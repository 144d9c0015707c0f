"""Finds the tenant to whom a secret belongs, and the policy that applies to the tenant now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gateway.domain.tenant import Tenant
from gateway.errors import ExpiredKey, InvalidKey, Overloaded
from gateway.policy.keys import PREFIX, Keys, digest
from gateway.policy.load import Policies

log = logging.getLogger(__name__)

_QUIET_S = 60.0
"""Pause between two log lines about unknown keys."""

_ENDED = "This API key has expired or was revoked; ask your team lead for a new one."


class Tenants:
    """Finds tenants, and refuses unknown keys. A tenant object is created once per key and set of policies. After that,
    one dictionary look-up finds it."""

    def __init__(
        self,
        ring: Keys,
        policies: Policies,
        closed_to: Callable[[str], frozenset[str]] = lambda team: frozenset(),
        *,
        kept_in: str = "",
    ) -> None:
        """`closed_to`: returns the names of the backends that the operator has reserved for other teams. `kept_in`: the
        place where the keys are stored, for the operator's log."""
        self._closed_to = closed_to
        self._kept_in, self._quiet_until = kept_in, 0.0
        self._ring = ring
        self._policies = policies
        self._known: dict[bytes, Tenant] = {}
        self._version = -1
        policies.on_change(self._known.clear)

    def authenticate(self, secret: bytes) -> Tenant:
        """The tenant of a secret. Raises InvalidKey, ExpiredKey, and Overloaded while the keys have not been read yet.
        A refused key is not logged: it may have just been created, and is then accepted after the keys are read again.
        """
        return self._current(digest(secret))

    async def find(self, secret: bytes) -> Tenant:
        """The tenant of a secret. If the key is unknown, the keys are read again before the key is refused. Raises
        InvalidKey, ExpiredKey, Overloaded.
        """
        try:
            return self.authenticate(secret)
        except InvalidKey:
            await self._catch_up(secret)
        try:
            return self.authenticate(secret)
        except ExpiredKey:
            raise
        except InvalidKey:
            self._log_unknown()
            raise

    async def _catch_up(self, secret: bytes) -> None:
        """Read the keys again, because `secret` may be a new key. Does nothing if `secret` does not look like a key."""
        if secret.startswith(PREFIX.encode()):
            await self._ring.catch_up()

    def of_key(self, lineage: str) -> Tenant:
        """The present tenant of a key, also if the key was rotated. Use it for work that the tenant requested
        earlier, such as a batch. Raises InvalidKey, ExpiredKey, Overloaded.
        """
        key_digest = self._ring.digest_of(lineage)
        if key_digest is None and self._ring.ready:
            raise ExpiredKey(f"The key {lineage} that requested this was revoked; request it again with an active key.")
        return self._current(key_digest or b"")

    async def find_of_key(self, lineage: str) -> Tenant:
        """The present tenant of a key, also if the key was rotated. If the key seems to be revoked, the keys are read
        again before the key is refused. Raises InvalidKey, ExpiredKey, Overloaded.
        """
        if self._ring.digest_of(lineage) is None:
            await self._ring.catch_up()
        return self.of_key(lineage)

    def _current(self, key_digest: bytes) -> Tenant:
        if self._version != self._ring.version:
            self._known.clear()
            self._version = self._ring.version
        tenant = self._known.get(key_digest)
        if tenant is None:
            tenant = self._known[key_digest] = self._find(key_digest)
        expires_at = tenant.key.expires_at
        if expires_at is not None and expires_at <= time.time():
            raise ExpiredKey(_ENDED)
        return tenant

    def _find(self, key_digest: bytes) -> Tenant:
        key = self._ring.find(key_digest)
        if key is None:
            if not self._ring.ready:
                raise Overloaded("Keys have not been read from the database yet; try again.", retry_after_s=1.0)
            if self._ring.ended(key_digest):
                raise ExpiredKey(_ENDED)
            raise InvalidKey(
                "Incorrect API key provided: this gateway has no such key. Keys belong to the data directory in which "
                "they were made. `thriftgate keys list` shows the keys, `thriftgate status` the directory that the "
                "running gateway uses, and `thriftgate keys create --team NAME` makes a key (tg-…). Send it as "
                "Authorization: Bearer or x-api-key."
            )
        policy, epoch = self._policies.current.find(key.team)
        return Tenant(key, policy, epoch, self._closed_to(key.team))

    def _log_unknown(self) -> None:
        """Log that an unknown key was refused. The log contains no part of the key. Writes at most one line per minute,
        because anyone can send unknown keys."""
        now = time.monotonic()
        if now < self._quiet_until or not self._kept_in:
            return
        self._quiet_until = now + _QUIET_S
        log.warning(
            "401: a request has a key that is not among those of %s. Keys belong to a data directory; "
            "`thriftgate keys list` shows which it has",
            self._kept_in,
        )
