from __future__ import annotations

import socket
import ssl

import pytest

from gateway.backends.http.unreachable import unreachable
from gateway.errors import AllBackendsFailed


@pytest.mark.parametrize(
    ("error", "needs_operator"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), False),
        (ssl.SSLCertVerificationError("self-signed certificate"), True),
        (ConnectionRefusedError(), False),
        (TimeoutError(), False),
    ],
)
def test_an_unknown_name_and_an_untrusted_certificate_need_the_operator(error: OSError, needs_operator: bool) -> None:
    found = unreachable(error, "why", "small")
    assert found.message == "small cannot be reached: why"
    assert (found.needs_operator, found.retryable) == (needs_operator, not needs_operator)
    assert found.refused is isinstance(error, ConnectionRefusedError)
    assert AllBackendsFailed([found, found]).retryable is not needs_operator
    assert AllBackendsFailed([found, unreachable(TimeoutError(), "late", "large")]).retryable
