"""Sends alerts by mail. The operator's environment names the SMTP server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from hashlib import sha256
from importlib import import_module
from typing import Any

import orjson

from gateway.alerts.delivery.posting import TIMEOUT_S, Poster
from gateway.alerts.delivery.sender import Destination, title
from gateway.settings.environment import smtp_settings

PORTS = {"starttls": 587, "tls": 465, "none": 25}
"""Encryption of the connection to the mail server → default port."""


class Smtp:
    """Sends mails. Opens a new connection to the mail server for each mail."""

    def __init__(
        self,
        poster: Poster | None = None,
        *,
        server: Callable[[], Mapping[str, str]] = smtp_settings,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`poster` is not used, because mail is not sent over HTTP. `server`: returns the settings of the mail
        server."""
        self._server, self._tls, self._timeout_s = server, tls, timeout_s

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        server = self._server()
        recipients = [address for each in to.address.split(",") if (address := each.strip())]
        encryption = server["tls"] or "starttls"
        port = server["port"] or str(PORTS.get(encryption, ""))
        if not server["host"]:
            return False, "THRIFTGATE_SMTP_HOST is not set in the gateway's environment"
        if encryption not in PORTS or not port.isdecimal():
            return False, "THRIFTGATE_SMTP_TLS must be starttls, tls or none, and THRIFTGATE_SMTP_PORT a number"
        try:
            mail = delivery(orjson.loads(payload), id, server["from"] or f"thriftgate@{server['host']}", recipients)
        except ValueError:
            return False, f"{to.reference} or THRIFTGATE_SMTP_FROM is not a mail address"
        return await self._send(mail, server, int(port), encryption)

    async def _send(
        self, mail: EmailMessage, server: Mapping[str, str], port: int, encryption: str
    ) -> tuple[bool, str]:
        aiosmtplib = await asyncio.to_thread(import_module, "aiosmtplib")  # most gateways send no mail
        try:
            async with asyncio.timeout(self._timeout_s):
                refused, reply = await aiosmtplib.send(
                    mail,
                    hostname=server["host"],
                    port=port,
                    username=server["user"] or None,
                    password=server["password"] or None,
                    use_tls=encryption == "tls",
                    start_tls=encryption == "starttls",
                    tls_context=None if encryption == "none" else self._tls(),
                    timeout=self._timeout_s,
                )
        except TimeoutError:
            return False, f"no answer within {self._timeout_s:g} s"
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            return False, _reason(error)
        if refused:
            return False, f"{len(refused)} of {len(mail['to'].addresses)} recipients are refused"
        return True, f"accepted for {len(mail['to'].addresses)} recipient(s): {reply}"[:200]


def delivery(payload: Mapping[str, Any], id: str, sender: str, recipients: list[str]) -> EmailMessage:
    """Make the mail for one alert. Raises ValueError for an invalid mail address."""
    if any("@" not in parseaddr(address)[1] for address in (sender, *recipients)):
        raise ValueError("no mail address")
    mail = EmailMessage()
    severity, team = payload.get("severity", "info"), payload.get("team", "")
    mail["From"], mail["To"], mail["Date"] = sender, ", ".join(recipients), formatdate()
    mail["Subject"] = f"[thriftgate] {severity}: {team}, {title(payload)}"
    # The same alert has the same id, so that mail programs drop repetitions.
    name, domain = sha256(id.encode()).hexdigest()[:32], parseaddr(sender)[1].rpartition("@")[2]
    mail["Message-ID"] = f"<{name}@{domain}>"
    mail["X-Thriftgate-Alert"] = id
    facts = "\n".join(f"{name}: {value}" for name, value in payload.items() if name != "text" and value is not None)
    mail.set_content(f"{payload['text']}\n\n{facts}\n")
    return mail


def _reason(error: Exception) -> str:
    """The reason for a failure: the status from the mail server, or the type of the error. The error's text is left
    out, because it may contain names and addresses."""
    code = getattr(error, "code", None)
    return (
        f"the mail server answered {code}" if isinstance(code, int) else f"cannot be reached ({type(error).__name__})"
    )
