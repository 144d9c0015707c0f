"""Mail reaches a real SMTP server, encrypted and logged in; what goes wrong comes back in words."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from typing import Any

import orjson
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

from gateway.alerts.delivery.receivers import Receivers
from gateway.alerts.delivery.smtp import Smtp
from gateway.alerts.detect.samples import sample
from tests.fakes.certificate import Certificate

NOW = 1_800_000_000.0
ALERT = sample("threshold", "search", NOW)
BODY = orjson.dumps({"id": ALERT.id, **ALERT.payload})


class Post:
    """What the server was given."""

    def __init__(self, answer: str = "250 kept") -> None:
        self.mails: list[Envelope] = []
        self.answer = answer

    async def handle_RCPT(self, server: Any, session: Any, envelope: Envelope, address: str, options: Any) -> str:  # noqa: N802
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:  # noqa: N802
        self.mails.append(envelope)
        return self.answer


def knows(server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
    return AuthResult(success=(data.login, data.password) == (b"gateway", b"right"), handled=False)


@asynccontextmanager
async def serving(make: Callable[[], SMTP], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, ssl=tls)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


class Mailer:
    """Delivers to the one receiver, whatever its reference."""

    def __init__(self, receivers: Receivers) -> None:
        self._receivers = receivers

    async def deliver(self, reference: str, id: str, payload: bytes) -> tuple[bool, str]:
        await self._receivers.open()
        answer = await self._receivers.deliver(f"email:{reference}", id, payload)
        await self._receivers.aclose()
        return answer.accepted, answer.said


def mailer(
    at: int,
    certificate: Certificate,
    recipients: str = "ops@example.com",
    *,
    trusted: Callable[[], ssl.SSLContext] | None = None,
    timeout_s: float = 8.0,
    **server: str,
) -> Mailer:
    facts = {"host": "127.0.0.1", "port": str(at), "user": "", "password": "", "from": "tg@example.com", "tls": ""}
    tls = trusted or (lambda: certificate.client)
    smtp = Smtp(server=lambda: {**facts, **server}, tls=tls, timeout_s=timeout_s)
    return Mailer(Receivers(address_of=lambda _: recipients, senders={"email": smtp}))


async def test_a_mail_is_delivered_over_starttls_with_a_login(certificate: Certificate) -> None:
    post = Post()

    def server() -> SMTP:
        return SMTP(
            post, tls_context=certificate.server, require_starttls=True, auth_required=True, authenticator=knows
        )

    async with serving(server) as port:
        both = "ops@example.com, Ann <ann@example.com>"
        login = {"user": "gateway", "password": "right"}
        smtp = mailer(port, certificate, both, **login)
        assert await smtp.deliver("env:OPS", ALERT.id, BODY) == (True, "accepted for 2 recipient(s): kept")
        assert await smtp.deliver("env:OPS", ALERT.id, BODY) == (True, "accepted for 2 recipient(s): kept")
        wrong = mailer(port, certificate, both, user="gateway", password="wrong")
        assert await wrong.deliver("env:OPS", ALERT.id, BODY) == (False, "the mail server answered 535")
    first, second = (message_from_bytes(mail.content, policy=policy.default) for mail in post.mails)
    assert post.mails[0].rcpt_tos == ["ops@example.com", "ann@example.com"]
    assert first["subject"] == "[thriftgate] critical: search, 100%"
    assert first["from"] == "tg@example.com"
    assert ALERT.payload["text"] in first.get_content().replace("=\n", "")
    assert first["message-id"] == second["message-id"]


async def test_a_mail_is_delivered_over_tls_and_in_the_clear_where_that_is_said(certificate: Certificate) -> None:
    post = Post()
    async with serving(lambda: SMTP(post), certificate.server) as port:
        accepted, _ = await mailer(port, certificate, tls="tls").deliver("env:OPS", "x", BODY)
        assert accepted
    async with serving(lambda: SMTP(post)) as port:
        accepted, _ = await mailer(port, certificate, tls="none").deliver("env:OPS", "x", BODY)
        assert accepted
        accepted, said = await mailer(port, certificate).deliver("env:OPS", "x", BODY)
        assert (accepted, said) == (False, "cannot be reached (SMTPException)")  # no STARTTLS: nothing in the clear
    assert len(post.mails) == 2


async def test_a_certificate_that_is_not_trusted_gets_no_mail(certificate: Certificate) -> None:
    post = Post()
    async with serving(lambda: SMTP(post), certificate.server) as port:
        smtp = mailer(port, certificate, trusted=ssl.create_default_context, tls="tls")
        accepted, said = await smtp.deliver("env:OPS", "x", BODY)
    assert (accepted, post.mails) == (False, [])
    assert said.startswith("cannot be reached")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"recipients": ""}, "env:OPS is not set"),
        ({"host": ""}, "THRIFTGATE_SMTP_HOST is not set"),
        ({"tls": "maybe"}, "THRIFTGATE_SMTP_TLS must be starttls, tls or none"),
        ({"port": "smtp"}, "THRIFTGATE_SMTP_PORT a number"),
        ({"recipients": "ops"}, "what the variable or file holds is no list of mail addresses"),
        ({"recipients": "a@b.c\r\nBcc: x@y.z"}, "what the variable or file holds is no list of mail addresses"),
        ({"recipients": "@"}, "env:OPS or THRIFTGATE_SMTP_FROM is not a mail address"),
        ({"from": "me"}, "env:OPS or THRIFTGATE_SMTP_FROM is not a mail address"),
    ],
)
async def test_what_the_environment_lacks_is_named(facts: dict[str, str], words: str, certificate: Certificate) -> None:
    accepted, said = await mailer(1, certificate, **facts).deliver("env:OPS", "x", BODY)
    assert not accepted
    assert words in said


async def test_recipients_that_are_refused_and_servers_that_refuse_are_told(certificate: Certificate) -> None:
    post = Post("451 later")
    async with serving(lambda: SMTP(post)) as port:
        some = mailer(port, certificate, "ops@example.com, nobody@example.com", tls="none")
        assert await some.deliver("env:OPS", "x", BODY) == (False, "the mail server answered 451")
        post.answer = "250 kept"
        assert await some.deliver("env:OPS", "x", BODY) == (False, "1 of 2 recipients are refused")


async def test_a_server_that_says_nothing_or_is_away_holds_nobody_up(certificate: Certificate) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    smtp = mailer(port, certificate, timeout_s=0.2)
    accepted, said = await smtp.deliver("env:OPS", "x", BODY)
    assert (accepted, said) == (False, "no answer within 0.2 s")
    server.close()
    await server.wait_closed()
    accepted, said = await smtp.deliver("env:OPS", "x", BODY)
    assert not accepted
    assert "127.0.0.1" not in said
