"""Parses the `x-thriftgate-*` request headers, and those headers of a LiteLLM proxy that have the same meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from gateway.domain.backend import RANK
from gateway.domain.policy import Policy
from gateway.domain.request import NO_CONTROLS, CacheControl, Controls
from gateway.domain.units import parse_duration
from gateway.errors import BadRequest, Forbidden

MAX_TAGS = 16
MAX_DEADLINE_S = 86400.0
MAX_HOPS = 8

_PREFIX = b"x-thriftgate-"
_LITELLM = b"x-litellm-"
_PAIR = re.compile("[=:]")
"""Separates name and value in a tag of LiteLLM. A tag without a separator gets the value `true`."""
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
_VALUE = re.compile(r"[ -~]{1,128}")
_SESSION = re.compile(r"[!-~]{1,256}")
_USD = re.compile(r"\d{1,9}(?:\.\d{1,12})?")


def parse_controls(headers: Mapping[bytes, bytes]) -> Controls:
    """Parse the control headers. `headers`: the names are in lower case. Raises BadRequest with the name of an invalid
    header. Unknown headers are ignored."""
    names = b"\n".join(headers)
    if _PREFIX not in names:  # most requests have no such header; the search is fast
        return NO_CONTROLS if _LITELLM not in names else of_litellm(headers, NO_CONTROLS)
    found = {name[len(_PREFIX) :]: _text(name, value) for name, value in headers.items() if name.startswith(_PREFIX)}
    found = {name: value for name, value in found.items() if value}
    controls = _controls(found) if found else NO_CONTROLS
    return controls if _LITELLM not in names else of_litellm(headers, controls)


def _controls(found: Mapping[bytes, str]) -> Controls:
    return Controls(
        cache=cast(CacheControl, _one_of(found, b"cache", ("bypass", "refresh", "only"))),
        cache_tags=_cache_tags(found.get(b"cache-tags", "")),
        tier=_one_of(found, b"tier", tuple(RANK)),
        deadline_s=_deadline(found[b"deadline"]) if b"deadline" in found else None,
        tags=_tags(found.get(b"tags", "")),
        session=_session(found.get(b"session", "")),
        untouched=_one_of(found, b"context", ("untouched",)) == "untouched",
        hops=_hops(found.get(b"hops", "")),
        max_usd=_max_usd(found[b"max-usd"]) if b"max-usd" in found else None,
        cache_scope=_cache_scope(found.get(b"cache-scope", "")),
        priority="batch" if _one_of(found, b"priority", ("batch", "interactive")) == "batch" else "",
    )


def of_litellm(headers: Mapping[bytes, bytes], controls: Controls) -> Controls:
    """Add to `controls` the session, the tags and the end user from the headers of a LiteLLM proxy. Values that
    `controls` already has stay.

    An invalid value is ignored, because the proxy passes on values of its clients. Only the key decides the team; no
    header does.
    """
    session = _first(headers, b"x-litellm-session-id")
    tags = dict(controls.tags)
    for item in _list(_first(headers, b"x-litellm-tags")):
        name, value, *_ = *_PAIR.split(item, 1), "true"
        if len(tags) < MAX_TAGS and _TAG.fullmatch(name) and _VALUE.fullmatch(value):
            tags.setdefault(name, value)
    return controls._replace(
        session=controls.session or (session if _SESSION.fullmatch(session) else ""),
        tags=tags,
        end_user=_first(headers, b"x-litellm-end-user-id", b"x-litellm-customer-id"),
    )


def _first(headers: Mapping[bytes, bytes], *names: bytes) -> str:
    """The value of the first of these headers that is present. Empty if no header is present, or if the value is not
    ASCII."""
    value = next((headers[name] for name in names if headers.get(name)), b"")
    return value.decode("ascii").strip() if value.isascii() else ""


def check_overrides(controls: Controls, policy: Policy) -> None:
    """Raises Forbidden if the request's headers override a decision of the gateway and `policy` forbids this."""
    if policy.overrides == "allowed":
        return
    headers = {"cache": controls.cache, "tier": controls.tier, "context": controls.untouched}
    if used := [f"x-thriftgate-{name}" for name, value in headers.items() if value]:
        raise Forbidden(
            f"{' and '.join(used)} is refused by `overrides: denied` in the policy of team {policy.team}. Send the "
            "request without it."
        )


def _refuse(name: str, wanted: str) -> BadRequest:
    return BadRequest(f"The header x-thriftgate-{name} must be {wanted}.", param=f"x-thriftgate-{name}")


def _text(name: bytes, value: bytes) -> str:
    try:
        return value.decode("ascii").strip()
    except UnicodeDecodeError:
        raise _refuse(name[len(_PREFIX) :].decode("ascii", "replace"), "plain ASCII") from None


def _one_of(found: Mapping[bytes, str], name: bytes, choices: tuple[str, ...]) -> str:
    value = found.get(name, "").lower()
    if value and value not in choices:
        raise _refuse(name.decode(), " or ".join(choices))
    return value


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _cache_tags(text: str) -> tuple[str, ...]:
    tags = _list(text)
    if len(tags) > MAX_TAGS or not all(map(_TAG.fullmatch, tags)):
        raise _refuse("cache-tags", f"at most {MAX_TAGS} comma-separated tags of letters, digits and ._:/-")
    return tuple(dict.fromkeys(tags))


def _deadline(text: str) -> float:
    try:
        seconds = parse_duration(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError:
        raise _refuse("deadline", "seconds above 0, such as 30 or 30s") from None
    return min(seconds, MAX_DEADLINE_S)


def _tags(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in _list(text)]
    tags = {name.strip(): value.strip() for name, _, value in pairs}
    valid = all(_TAG.fullmatch(name) and _VALUE.fullmatch(value) for name, value in tags.items())
    if len(pairs) > MAX_TAGS or not valid:
        raise _refuse("tags", f"at most {MAX_TAGS} pairs such as team=search,feature=answers")
    return tags


def _hops(text: str) -> tuple[str, ...]:
    hops = _list(text)
    if len(hops) > MAX_HOPS or not all(map(_TAG.fullmatch, hops)):
        raise _refuse("hops", f"at most {MAX_HOPS} ids of gateways")
    return tuple(hops)


def _cache_scope(text: str) -> str:
    if text and not _TAG.fullmatch(text):
        raise _refuse("cache-scope", "at most 64 letters, digits and ._:/-")
    return text


def _max_usd(text: str) -> Decimal:
    if not _USD.fullmatch(text):
        raise _refuse("max-usd", "US dollars, such as 0.05")
    return Decimal(text)


def _session(text: str) -> str:
    if text and not _SESSION.fullmatch(text):
        raise _refuse("session", "at most 256 printable characters without spaces")
    return text
