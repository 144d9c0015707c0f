"""Gives one answer per `Idempotency-Key`: a repeated request gets the answer of the first one, on any worker."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from gateway.api.idempotency.recording import Recorder, Recording
from gateway.api.server.caller import Caller
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, DeadlineExceeded, GatewayError, KeyReused, StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import Script, State

log = logging.getLogger(__name__)

HEADER = "Idempotency-Key"
KEPT_S = 86400.0
LEASE_S = 10.0
"""Seconds for which a worker's claim on a request is valid without renewal. If the worker dies, other workers can
answer the request after this time."""
MOST_ANSWER_BYTES = 2**20
MOST_KEPT_BYTES = 64 * 2**20
"""Maximum bytes of one worker's answers on the state server."""
AT_HAND_BYTES = 8 * 2**20
_BESIDE_BYTES = 2500
"""Bytes that a stored answer takes in addition to its body."""
_MOST_KEY_BYTES = 255
_LOOK_S = (0.05, 0.5)
"""Seconds between checks for another worker's answer: at first, and later."""
_CLAIM, _ANSWER = b"c", b"a"
_PRINT_BYTES = 16

_KEEP = Script(
    "idempotency-keep",
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
)
_DROP = Script(
    "idempotency-drop",
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
)

Serve = Callable[[Caller], Awaitable[None]]
Refuse = Callable[[Caller, GatewayError], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Run:
    """One idempotent request, in progress or answered."""

    place: str
    """The request's key on the state server."""
    print: bytes
    """A digest of the request. It distinguishes different requests with the same idempotency key."""
    recording: Recording = field(default_factory=Recording)
    ends_at: float = 0.0
    """Unix time at which the answer expires; 0 while the request is in progress."""

    @property
    def kept(self) -> bool:
        """Whether repeated requests get this answer. An answer that is an error is not kept, so that the request can be
        tried again."""
        return self.recording.good and self.recording.size <= MOST_ANSWER_BYTES


class Idempotency:
    """Keeps answers for repeated requests. While the state server is down, each worker replays only its own answers."""

    def __init__(self, state: State, *, patience_s: float) -> None:
        """`patience_s`: maximum seconds for a request, and for waiting for another worker's answer."""
        self._state, self._patience_s = state, patience_s
        self._runs: OrderedDict[bytes, Run] = OrderedDict()
        self._at_hand = self._kept_bytes = 0
        self._kept: OrderedDict[str, int] = OrderedDict()
        self._tasks = Tasks()

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def answer(
        self, key: bytes, body: bytes, caller: Caller, tenant: Tenant, serve: Serve, refuse: Refuse
    ) -> asyncio.Task[None] | None:
        """Answer the first request with `key` by `serve`, and repeat its answer for later requests with this key.

        If the caller has left, returns the task that still serves the request. Raises BadRequest and KeyReused.
        """
        if not key or len(key) > _MOST_KEY_BYTES or not key.isascii() or not key.decode().isprintable():
            message = f"{HEADER} must have 1 to {_MOST_KEY_BYTES} printable ASCII characters."
            raise BadRequest(message, param=HEADER)
        asked = b"\0".join((tenant.team.encode(), tenant.key.lineage.encode(), caller.path.encode(), caller.query, key))
        digest = blake2b(asked, digest_size=16).digest()
        print_ = blake2b(body, digest_size=_PRINT_BYTES).digest()
        run = self._find(digest)
        if run is not None:
            if run.print != print_:
                raise reused()
            await run.recording.play(caller, again=True)
            return None
        run = self._runs[digest] = Run(self._state.key("idempotency", digest.hex()), print_)
        task = self._tasks.spawn(self._lead(digest, run, caller, serve, refuse), "idempotent request")
        await run.recording.play(caller, again=False)
        return None if task.done() else task

    def _find(self, digest: bytes) -> Run | None:
        run = self._runs.get(digest)
        if run is None or not run.recording.over:
            return run
        if run.ends_at and run.ends_at < time.time():
            self._forget(digest)
            return None
        return run if run.kept else None

    async def _lead(self, digest: bytes, run: Run, caller: Caller, serve: Serve, refuse: Refuse) -> None:
        """Check whether another worker has answered. If not, serve the request. The answer is kept for `KEPT_S`
        seconds, except if it is an error.
        """
        recorder = Recorder(caller, run.recording)
        try:
            claim = await self._claim(run)
            if not run.recording.over:
                await self._serve(run, claim, recorder, serve)
        except GatewayError as error:
            await refuse(recorder, error)
        finally:
            run.recording.tear()
            if run.kept:
                self._remember(run)
            elif self._runs.get(digest) is run:
                del self._runs[digest]

    async def _serve(self, run: Run, claim: bytes | None, recorder: Recorder, serve: Serve) -> None:
        if claim is None:
            await serve(recorder)
            return
        renewing = self._tasks.spawn(self._renew(run, claim), "idempotency lease")
        try:
            await serve(recorder)
        finally:
            renewing.cancel()
        await self._keep(run, claim)

    # -- the state server ------------------------------------------------------------------------------------------

    async def _claim(self, run: Run) -> bytes | None:
        """Claim the request for this worker and return the claim.

        Returns None if another worker has answered (its answer is then in `run`), or if the state server is
        unavailable. Raises KeyReused; DeadlineExceeded if another worker takes too long.
        """
        claim = _CLAIM + run.print + secrets.token_bytes(8)
        until, pause_s = time.monotonic() + self._patience_s, _LOOK_S[0]
        lease_ms = int(LEASE_S * 1000)
        while time.monotonic() < until:
            commands = (("SET", run.place, claim, "NX", "PX", lease_ms), ("GET", run.place))
            try:
                _, found = await self._state.pipeline(commands)
            except StateUnavailable:
                return None
            if found == claim:
                return claim
            if found and found[1 : 1 + _PRINT_BYTES] != run.print:
                raise reused()
            if found and found[:1] == _ANSWER:
                run.recording.load(found[1 + _PRINT_BYTES :])
                return None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LOOK_S[1])
        raise DeadlineExceeded(f"Another request with this {HEADER} is still being answered.")

    async def _renew(self, run: Run, claim: bytes) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            try:
                await self._state.run(_KEEP, (run.place,), (claim, int(LEASE_S * 1000)))
            except StateUnavailable:
                continue

    async def _keep(self, run: Run, claim: bytes) -> None:
        """Store the answer on the state server, for other workers."""
        try:
            if not run.kept:
                await self._state.run(_DROP, (run.place,), (claim,))
                return
            value = _ANSWER + run.print + run.recording.encode()
            await self._state.call("SET", run.place, value, "PX", int(KEPT_S * 1000))
            self._kept[run.place] = len(value)
            self._kept_bytes += len(value)
            while self._kept_bytes > MOST_KEPT_BYTES:
                place, size = self._kept.popitem(last=False)
                self._kept_bytes -= size
                await self._state.call("DEL", place)
        except StateUnavailable as error:
            log.debug("an idempotent answer is known to this worker only: %s", error)

    # -- in memory ---------------------------------------------------------------------------------------------------

    def _remember(self, run: Run) -> None:
        run.ends_at = time.time() + KEPT_S
        self._at_hand += run.recording.size + _BESIDE_BYTES
        while self._at_hand > AT_HAND_BYTES:
            oldest = next(name for name, each in self._runs.items() if each.ends_at)
            self._forget(oldest)

    def _forget(self, digest: bytes) -> None:
        self._at_hand -= self._runs.pop(digest).recording.size + _BESIDE_BYTES

    def stats(self) -> dict[str, int | float | str]:
        answered = sum(1 for run in self._runs.values() if run.ends_at)
        return {"open": len(self._runs) - answered, "at_hand": answered, "kept_bytes": self._kept_bytes}


def reused() -> KeyReused:
    return KeyReused(
        f"This {HEADER} was used for another request to this path; send a new key with a new request.", param=HEADER
    )
