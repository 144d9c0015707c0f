"""The error for a backend to which no connection could be made."""

from __future__ import annotations

import socket
import ssl

from gateway.errors import BackendUnreachable


def unreachable(error: BaseException, reason: str, name: str) -> BackendUnreachable:
    """The error for the backend `name`, after connecting failed with `error`. `reason` must contain no address, because
    clients see it.

    If the host name is unknown or the certificate is not trusted, the error says that only the operator can correct
    this. If a name server does not answer, the error counts as temporary.
    """
    found = BackendUnreachable(f"{name} cannot be reached: {reason}", backend=name)
    found.refused = isinstance(error, ConnectionRefusedError)
    unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
    return found.of_operator() if unknown or isinstance(error, ssl.SSLCertVerificationError) else found
