"""Limits requests per minute, tokens per minute and concurrent requests, per team and per key.

Rates are exact over a sliding window of 60 s in steps of 100 ms. All workers share them through leases, so `admit`
usually needs no round trip. While the state server is unavailable, a worker first uses up its lease. Then it applies
its share of each limit (limit ÷ workers) to its own last minute, and records this in `record.degraded`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.domain.policy import Policy, Rates
from gateway.domain.record import Record
from gateway.domain.tenant import Tenant
from gateway.errors import LimitExceeded, StateUnavailable
from gateway.state.leases.counter import Lease, NotEnough, Want
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State

What = Literal["requests", "tokens", "concurrent"]

_MOST_ACCOUNTS = 10_000
_WINDOW_S = 60
_WHOLE_AGAIN = b"1m0s"
_SETTING: dict[What, str] = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "concurrent": "concurrent",
}
_RATES: tuple[What, ...] = ("requests", "tokens")


@dataclass(frozen=True, slots=True)
class _Rule:
    what: What
    whose: str
    """The team or key to which the limit applies, as error messages name it."""
    setting: str
    limit: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class _Shown:
    """Names of three response headers (limit, rest, reset time), and the rules behind their values.

    Both the team and the key may have a rule. The headers show the values of one rule.
    """

    limit: bytes
    remaining: bytes
    reset: bytes
    rules: tuple[tuple[Lease, bytes], ...]
    """(Counter, limit as text) of each rule."""


@dataclass(frozen=True, slots=True)
class _Account:
    """The rules that apply to one key under one policy."""

    policy: Policy
    rules: tuple[_Rule, ...]
    ones: tuple[Want, ...]
    """(Counter, 1) for each counter of which every request takes one unit."""
    tokens: tuple[_Rule, ...]
    gauges: tuple[Lease, ...]
    shown: tuple[_Shown, ...]
    """The groups of response headers, with their rules."""
    headers: dict[bytes, bytes]
    """The values of the headers while nothing is used."""


class RateLimits:
    """Applies rate limits. Opened once per worker. `workers`: number of workers that share a limit; the supervisor sets
    it."""

    def __init__(self, state: State, *, workers: int = 1, leases: Leases | None = None) -> None:
        self._leases = leases or Leases(state, workers=workers)
        self._accounts: dict[str, _Account] = {}
        self._counts = {"admitted": 0, "refused": 0, "on_share": 0}

    async def open(self) -> None:
        await self._leases.open()

    async def aclose(self) -> None:
        await self._leases.aclose()

    def stats(self) -> dict[str, int | float | str]:
        return {**self._counts, **{f"leases.{name}": value for name, value in self._leases.stats().items()}}

    async def admit(self, tenant: Tenant, tokens: int, record: Record) -> Permit:
        """Count a request of about `tokens` tokens. Raises LimitExceeded. The caller must release the permit exactly
        once, however the request ends."""
        account = self._accounts.get(tenant.key.lineage)
        if account is None or account.policy is not tenant.policy:
            account = self._open_account(tenant)
        if not account.rules:
            return Permit(self._leases, account, 0)
        wants = account.ones
        for rule in account.tokens:
            wants += ((rule.lease, tokens),)
        if tenant.team in self._leases.away:
            record.degraded.add("state")
        if not self._leases.try_take(wants):
            await self._take(account, wants, tokens, record)
        self._counts["admitted"] += 1
        record.ratelimit = _headers(account)
        return Permit(self._leases, account, tokens)

    async def _take(self, account: _Account, wants: Sequence[Want], tokens: int, record: Record) -> None:
        for rule in account.tokens:
            if tokens > rule.limit:
                raise self._refuse(_too_large(rule, tokens))
        try:
            short = await self._leases.take(wants)
        except StateUnavailable:
            record.degraded.add("state")
            short = self._share(wants)
        if short is not None:
            rule = next(rule for rule in account.rules if rule.lease is short.lease)
            record.ratelimit = _headers(account, short)
            raise self._refuse(_spent(rule, tokens, short))

    def _share(self, wants: Sequence[Want]) -> NotEnough | None:
        """Take `wants` from this worker's share of each limit, while the state server is unavailable.

        Returns a counter whose share is too small; None if all units were taken.
        """
        step = self._leases.step
        for lease, units in wants:
            share = lease.limit // max(self._leases.workers, lease.workers)
            used = lease.used(step) if lease.kind == "rate" else lease.busy
            if used and used + units > share:
                wait_s = lease.wait_s(used + units - share, step) if lease.kind == "rate" else None
                return NotEnough(lease, units, wait_s)
        for lease, units in wants:
            self._leases.force(lease, units)
        self._counts["on_share"] += 1
        return None

    def _refuse(self, error: LimitExceeded) -> LimitExceeded:
        self._counts["refused"] += 1
        return error

    def _open_account(self, tenant: Tenant) -> _Account:
        if len(self._accounts) >= _MOST_ACCOUNTS:
            self._accounts.clear()  # they are created again from the leases in use
        limits, key = tenant.policy.limits, tenant.key
        whose = f"Key {key.name or key.lineage}"
        rules = (
            *self._rules(limits, f"Team {tenant.team}", "limits", tenant.team, ("team",)),
            *self._rules(limits.per_key, whose, "limits.per_key", tenant.team, ("key", key.lineage)),
        )
        shown = tuple(
            _shown(what, found) for what in _RATES if (found := [rule for rule in rules if rule.what == what])
        )
        account = self._accounts[key.lineage] = _Account(
            tenant.policy,
            rules,
            tuple((rule.lease, 1) for rule in rules if rule.what != "tokens"),
            tuple(rule for rule in rules if rule.what == "tokens"),
            tuple(rule.lease for rule in rules if rule.what == "concurrent"),
            shown,
            {name: text for each in shown for name, text in _unused(each).items()},
        )
        return account

    def _rules(self, rates: Rates, whose: str, section: str, team: str, name: tuple[str, ...]) -> list[_Rule]:
        rules = []
        for what, setting in _SETTING.items():
            limit: int | None = getattr(rates, setting)
            if limit is not None:
                kind: Literal["rate", "gauge"] = "gauge" if what == "concurrent" else "rate"
                lease = self._leases.counter(team, *name, what, kind=kind, limit=limit)
                rules.append(_Rule(what, whose, f"{section}.{setting}", limit, lease))
        return rules


class Permit:
    """The permission for one request to run. It is given back by calling `release`."""

    __slots__ = ("_account", "_leases", "_step", "_tokens")

    def __init__(self, leases: Leases, account: _Account, tokens: int) -> None:
        self._leases, self._account = leases, account
        self._tokens: int | None = tokens if account.tokens else None
        self._step = leases.taken_at

    def settle(self, tokens: int) -> None:
        """Replace the estimated tokens of the request by `tokens`, its real input and output. Only the first call
        has an effect.
        """
        charged, self._tokens = self._tokens, None
        if charged is not None and tokens != charged:
            for rule in self._account.tokens:
                self._leases.correct(rule.lease, tokens - charged, self._step)

    def release(self) -> None:
        """Give the permit back, so that another request may run. If `settle` was not called before, no backend was
        called, and the request counts with 0 tokens.
        """
        if self._tokens is not None:
            self.settle(0)
        self._leases.give(self._account.gauges, 1)


def _shown(what: What, rules: Sequence[_Rule]) -> _Shown:
    """The names of three response headers for one kind of limit. `what`: the kind, in OpenAI's words. `rules`:
    rules whose values the headers show.
    """
    limit, remaining, reset = (f"x-ratelimit-{name}-{what}".encode() for name in ("limit", "remaining", "reset"))
    return _Shown(limit, remaining, reset, tuple((rule.lease, b"%d" % rule.limit) for rule in rules))


def _unused(shown: _Shown) -> dict[bytes, bytes]:
    """The values of the rate-limit headers while nothing is used. The reset time is a minute, because both requests
    and tokens are counted over the last minute.
    """
    _, limit = shown.rules[0]
    return {shown.limit: limit, shown.remaining: limit, shown.reset: _WHOLE_AGAIN}


def _headers(account: _Account, short: NotEnough | None = None) -> dict[bytes, bytes]:
    """The rate-limit headers of a response. If both the team and the key have a limit of the same kind, the headers
    show the one with less left. `short`: the counter that had too few units for the request, if any.
    """
    headers = account.headers.copy()
    for shown in account.shown:
        left = sys.maxsize
        for lease, limit in shown.rules:
            if (rest := lease.rest + lease.free) < left:
                left, least, headers[shown.limit] = rest, lease, limit
        headers[shown.remaining] = b"%d" % left if left > 0 else b"0"
        if short is not None and short.lease is least and short.retry_after_s:
            headers[shown.reset] = duration(short.retry_after_s).encode()
    return headers


def duration(seconds: float) -> str:
    """A duration in OpenAI's format: `120ms`, `12.5s`, `1m0s`."""
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    minutes, rest = divmod(round(seconds, 1), 60)
    return f"{int(minutes)}m{rest:g}s" if minutes else f"{rest:g}s"


def _too_large(rule: _Rule, tokens: int) -> LimitExceeded:
    return LimitExceeded(
        f"The request needs about {tokens} tokens, more than the {rule.limit} tokens that {rule.whose} may use in any "
        f"60 seconds. Shorten it, or have {rule.setting} raised in the team's policy."
    )


def _spent(rule: _Rule, tokens: int, short: NotEnough) -> LimitExceeded:
    wait_s = short.retry_after_s or 1.0
    raised = f"or have {rule.setting} raised in the team's policy"
    if rule.what == "concurrent":
        what = f"{rule.whose} has {rule.limit} requests in progress, as many as it may"
        return LimitExceeded(f"{what}. Try again when one of them has ended, {raised}.", retry_after_s=wait_s)
    if rule.what == "tokens":
        what = (
            f"The request needs about {tokens} tokens and {rule.whose} has {short.lease.remaining} left of its "
            f"{rule.limit} tokens in any {_WINDOW_S} seconds"
        )
    else:
        what = f"{rule.whose} has used its {rule.limit} requests in any {_WINDOW_S} seconds"
    return LimitExceeded(f"{what}. Try again in {duration(wait_s)}, {raised}.", retry_after_s=wait_s)
