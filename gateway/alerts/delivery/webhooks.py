"""Posts alerts as JSON to a URL. They are signed by the Standard Webhooks scheme if the operator has set a secret.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import time
from collections.abc import Callable

from gateway.alerts.delivery.posting import Poster
from gateway.settings.environment import receiver, receiver_secret

_PREFIX = "whsec_"


class Webhooks:
    """Delivers to webhooks. `url_of` and `secret_of` return the URL and the secret for a policy's `env:NAME`. They are
    called for every alert."""

    def __init__(
        self,
        poster: Poster,
        *,
        url_of: Callable[[str], str] = receiver,
        secret_of: Callable[[str], str] = receiver_secret,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._poster, self._url_of, self._secret_of, self._time = poster, url_of, secret_of, clock

    async def deliver(self, reference: str, id: str, payload: bytes) -> tuple[bool, str]:
        url, secret = await asyncio.to_thread(self._url_of, reference), self._secret_of(reference)
        if not url:
            return False, f"{reference} is not set in the gateway's environment"
        at = int(self._time())
        headers = {"idempotency-key": id, "webhook-id": id, "webhook-timestamp": str(at)}
        if secret:
            headers["webhook-signature"] = signature(secret, id, at, payload)
        return await self._poster.post(url, payload, headers)


def signature(secret: str, id: str, at: int, payload: bytes) -> str:
    """The signature: `v1,` and the base64 HMAC-SHA256 of id, time in Unix seconds and body.

    `secret` is either `whsec_` followed by the key in base64, as in the standard, or the key itself.
    """
    signed = b".".join((id.encode(), str(at).encode(), payload))
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:  # not base64: a plain key that happens to begin with `whsec_`
            pass
    return secret.encode()
