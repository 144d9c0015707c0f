"""Posts alerts as JSON to a URL. If the operator has set a secret, the requests are signed according to Standard
Webhooks.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable

from gateway.alerts.delivery.posting import Poster
from gateway.alerts.delivery.sender import Destination

_PREFIX = "whsec_"


class Webhooks:
    def __init__(self, poster: Poster, *, clock: Callable[[], float] = time.time) -> None:
        self._poster, self._time = poster, clock

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        at = int(self._time())
        headers = {"idempotency-key": id, "webhook-id": id, "webhook-timestamp": str(at)}
        if to.secret:
            headers["webhook-signature"] = signature(to.secret, id, at, payload)
        return await self._poster.post(to.address, payload, headers)


def signature(secret: str, id: str, at: int, payload: bytes) -> str:
    """The value of the signature header: `v1,` and the base64 HMAC-SHA256 of `id`, `at` (Unix seconds) and `payload`.
    `secret`: the key itself, or `whsec_` followed by the key in base64."""
    signed = b".".join((id.encode(), str(at).encode(), payload))
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:  # not base64: a plain key that happens to begin with `whsec_`
            pass
    return secret.encode()
