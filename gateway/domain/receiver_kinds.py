"""The kinds of alert receivers. Policies, gateway.yaml, `init`, `team add` and deliveries all use this table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit


class AddressForm(NamedTuple):
    """The form that the address of a receiver must have. An address in another form is not used, and its text is not
    passed on."""

    called: str
    fits: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class ReceiverKind:
    """One kind of receiver. Its name is the key in policies and gateway.yaml, and the option of the commands `init` and
    `team add`."""

    address: str
    """What the variable or file with the address contains, for help and tables."""
    form: AddressForm
    sender: str
    """Module and class below `gateway/alerts/delivery/` that deliver alerts. They are loaded at the first delivery."""
    in_policies: bool = True
    """Whether policies may name the variable with the address. If False, only `receivers` in gateway.yaml may."""
    named: str = ""
    """A word that the variable's name must contain in policies, because other secrets may have the form of the address.
    """
    extra: str = ""
    """The optional dependency that this kind needs. It is the name of the extra and of its module."""


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable() and " " not in text
    except ValueError:
        return False


def _are_mail_addresses(text: str) -> bool:
    return text.isprintable() and all("@" in each for each in text.split(",") if each.strip())


def _is_integration_key(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9]{32}", text) is not None


def _is_apprise_url(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9]*://[!-~]+", text) is not None


_URL = AddressForm("http or https URL", _is_url)
_MAIL = AddressForm("list of mail addresses", _are_mail_addresses)
_INTEGRATION_KEY = AddressForm("integration key of 32 letters and digits", _is_integration_key)
_APPRISE_URL = AddressForm("URL of Apprise", _is_apprise_url)

KINDS: Mapping[str, ReceiverKind] = {
    "webhook": ReceiverKind("a webhook's URL", _URL, "webhooks.Webhooks"),
    "slack": ReceiverKind("the URL of a Slack webhook or of a compatible one", _URL, "slack.Slack"),
    "email": ReceiverKind("mail addresses, separated by commas", _MAIL, "smtp.Smtp"),
    "msteams": ReceiverKind("the URL of a Microsoft Teams workflow", _URL, "msteams.MsTeams"),
    "pagerduty": ReceiverKind(
        "a PagerDuty integration key (Events API v2)", _INTEGRATION_KEY, "pagerduty.PagerDuty", named="PAGERDUTY"
    ),
    "apprise": ReceiverKind("a URL of Apprise", _APPRISE_URL, "apprise.ViaApprise", in_policies=False, extra="apprise"),
}
"""Name → kind."""
IN_POLICIES: tuple[str, ...] = tuple(name for name, kind in KINDS.items() if kind.in_policies)


def target(kind: str, reference: str) -> str:
    """The text by which deliveries, lists and logs name a policy's receiver: `env:NAME` for a webhook, otherwise
    `KIND:REFERENCE`."""
    return reference if kind == "webhook" else f"{kind}:{reference}"


def kind_and_reference(target: str) -> tuple[str, str]:
    """Split a text that `target` made into (kind, reference). The kind need not be in `KINDS`."""
    kind, _, reference = target.partition(":")
    return ("webhook", target) if kind == "env" else (kind, reference)
