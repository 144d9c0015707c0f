"""A certificate for 127.0.0.1 and localhost, made on the spot, so that no key lies in the repository."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    server: ssl.SSLContext
    client: ssl.SSLContext
    """Trusts this certificate and no other."""


def make(directory: Path) -> Certificate:
    key, chain = directory / "key.pem", directory / "chain.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", "-x509", *curve, "-keyout", str(key), "-out", str(chain), *subject]
    subprocess.run(command, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, key)
    return Certificate(server, ssl.create_default_context(cafile=str(chain)))
